"""Clients' protocols in front of engines that do not speak them."""
