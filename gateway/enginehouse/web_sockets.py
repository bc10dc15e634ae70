"""WebSockets: the connection of a client that asks for one, and its request to an engine."""

from __future__ import annotations

from enginehouse.relay.heads import FOR_THE_GATEWAY as FOR_THE_GATEWAY
from enginehouse.relay.web_socket_server import AskedEngine as AskedEngine
from enginehouse.relay.web_socket_server import Handshake as Handshake
from enginehouse.relay.web_socket_server import MessageShare as MessageShare
from enginehouse.relay.web_socket_server import WebSocketCarrier as WebSocketCarrier
from enginehouse.relay.web_socket_server import WebSocketToEngine as WebSocketToEngine
