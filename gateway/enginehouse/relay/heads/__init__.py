"""Heads of requests and answers: the headers that pass, and those that a connection has seen before."""
