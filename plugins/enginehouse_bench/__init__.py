"""``enginehouse bench``: measures what the gateway costs, compared with the engine alone and with other gateways."""
