"""The answer that a client gets: as it comes, joined from two engines, or gathered from a stream."""
