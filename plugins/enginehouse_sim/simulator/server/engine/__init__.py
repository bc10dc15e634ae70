"""The engine that the server drives: steps in real time, outputs to listeners."""
