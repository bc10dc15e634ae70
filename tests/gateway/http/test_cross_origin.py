"""Which pages may call a gateway without keys, by the headers that browsers send."""

from __future__ import annotations

from collections.abc import Sequence
from socket import gethostname

import pytest

from enginehouse.config.schema import ServerSettings
from enginehouse.domain.errors import Forbidden
from enginehouse.http.cross_origin import CrossOriginProtection

EVIL = "http://evil.example"


def sent(**headers: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]


def refused(server: ServerSettings | None = None, /, **headers: str) -> bool:
    try:
        CrossOriginProtection(server or ServerSettings()).check(sent(**headers))
    except Forbidden:
        return True
    return False


def listening(host: str, allowed_hosts: Sequence[str] = (), cors: Sequence[str] = ()) -> ServerSettings:
    return ServerSettings(host=host, allowed_hosts=list(allowed_hosts), cors=list(cors))


LOOPBACK = ["localhost", "LOCALHOST:8080", "app.localhost", "localhost.", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080"]
LOOPBACK += ["[::ffff:127.0.0.1]", ""]
FOREIGN = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"]
FOREIGN += ["[fe80::1]", "127.1"]


@pytest.mark.parametrize("host", LOOPBACK)
def test_names_of_the_loopback_interface_are_known(host: str) -> None:
    assert not refused(host=host)


@pytest.mark.parametrize("host", [*FOREIGN, "192.168.1.5", "0.0.0.0"])
def test_other_names_are_refused_whatever_else_is_sent(host: str) -> None:
    assert refused(host=host)
    assert refused(host=host, origin=f"http://{host}", sec_fetch_site="same-origin")
    assert refused(listening("127.0.0.1", cors=["*"]), host=host)


@pytest.mark.parametrize(
    ("server", "known", "unknown"),
    [
        (listening("192.168.1.5"), ["192.168.1.5:8080", "localhost"], ["192.168.1.6", *FOREIGN]),
        (listening("fd00::5"), ["[fd00::5]:8080", "[fd00:0::5]"], ["[fd00::6]", "192.168.1.5"]),
        (listening("gpu.lan"), ["gpu.lan:8080", "GPU.lan"], ["lan", "192.168.1.5", *FOREIGN]),
        (listening("0.0.0.0"), ["192.168.1.5", "[fd00::6]:8080", gethostname()], FOREIGN[:5]),
        (listening("::"), ["192.168.1.5", "[fd00::6]:8080", gethostname()], FOREIGN[:5]),
        (listening("127.0.0.1", ["gpu.lan", "*.home"]), ["gpu.lan:1", "a.HOME", "a.b.home"], ["home", "xgpu.lan"]),
        (listening("127.0.0.1", ["gpu.lan:8080", "[fd00::7]"]), ["gpu.lan", "[fd00::7]:1"], FOREIGN),
        (listening("127.0.0.1", ["*"]), [*FOREIGN, "192.168.1.5"], []),
    ],
)
def test_names_of_the_bound_address_and_allowed_hosts_are_known(
    server: ServerSettings, known: Sequence[str], unknown: Sequence[str]
) -> None:
    assert [host for host in known if refused(server, host=host)] == []
    assert [host for host in unknown if not refused(server, host=host)] == []


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({"origin": "http://localhost:8080"}, False),
        ({"origin": "https://localhost:8080"}, False),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "http://localhost"}, True),
        ({"origin": EVIL}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"origin": "http://["}, True),
        ({"origin": EVIL, "sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "cross-site"}, True),
        ({"sec_fetch_site": "same-site"}, True),
        ({"sec_fetch_site": "same-origin"}, False),
        ({"sec_fetch_site": "none"}, False),
        ({"sec_fetch_site": "none", "referer": EVIL}, False),
        ({"referer": f"{EVIL}/page?x"}, True),
        ({"referer": "http://localhost:8080/logs"}, False),
        ({"referer": "nonsense"}, True),
        ({"referer": "http://["}, True),
        ({}, False),
    ],
)
def test_a_page_of_another_origin_is_refused(headers: dict[str, str], is_refused: bool) -> None:
    assert refused(host="localhost:8080", **headers) is is_refused
    assert not refused(listening("127.0.0.1", cors=["*"]), host="localhost:8080", **headers)


def test_a_page_in_cors_may_call() -> None:
    server = listening("127.0.0.1", cors=["http://app.example"])
    assert not refused(server, host="localhost", origin="http://app.example", sec_fetch_site="cross-site")
    assert refused(server, host="localhost", origin="http://app.example:81")
    assert refused(server, host="localhost", origin="http://app.example.evil.example")
    assert refused(server, host="localhost", sec_fetch_site="cross-site")


def test_a_second_origin_does_not_hide_the_first() -> None:
    headers = sent(host="localhost")
    own, evil = (b"origin", b"http://localhost"), (b"origin", EVIL.encode())
    for pair in ([own, evil], [evil, own]):
        for check in (CrossOriginProtection.check, CrossOriginProtection.check_origin):
            with pytest.raises(Forbidden):
                check(CrossOriginProtection(ServerSettings()), headers + pair)


def test_messages_name_the_remedy_and_are_bounded() -> None:
    protection = CrossOriginProtection(ServerSettings())
    with pytest.raises(Forbidden, match=r"'gpu\.lan'.*server\.allowed_hosts.*auth\.keys"):
        protection.check(sent(host="gpu.lan"))
    with pytest.raises(Forbidden, match=r"http://evil\.example.*server\.cors"):
        protection.check(sent(host="localhost", origin=EVIL))
    with pytest.raises(Forbidden) as error:
        protection.check(sent(host="x" * 60_000))
    assert len(str(error.value)) < 1000
