"""Routing: request -> requirements -> candidates -> filters -> alias and fallback -> strategy -> route. Pure."""
