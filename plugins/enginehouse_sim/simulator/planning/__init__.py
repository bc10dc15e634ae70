"""Plans fleets: how many engines meet the objectives, at what price, and how sure that is."""
