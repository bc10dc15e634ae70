"""Tokens of an identity provider, made with the library that checks them, and with forged ones."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from enginehouse import Requirements
from enginehouse.config.auth import AuthSettings, JwtSettings
from enginehouse.config.schema import KeySettings
from enginehouse.domain.errors import Forbidden
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.usage import UsageRow
from enginehouse.errors import RateLimited, Unauthorized
from enginehouse.http.admission import ActiveAuthenticator
from enginehouse_callers import Callers, TokenAuthenticator
from enginehouse_callers.accounts import KeyHolder
from enginehouse_callers.keyring import Keyring
from enginehouse_kit.testing import FakeServiceGateway
from tests.support.fake_clock import StoppedClock
from tests.support.keys import asking
from tests.support.served_gateway import limits_at

ISSUER = "https://login.example.org"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


def key_set() -> dict[str, Any]:
    first = json.loads(RSAAlgorithm.to_jwk(RSA.public_key()))
    second = json.loads(ECAlgorithm.to_jwk(CURVE.public_key()))
    return {"keys": [{**first, "kid": "rsa", "alg": "RS256"}, {**second, "kid": "ec", "alg": "ES256"}]}


class Provider:
    """A keyring that accepts the provider's tokens, at a clock that stands still."""

    def __init__(self, **settings: Any) -> None:
        self.clock = StoppedClock(jwt_now())
        self.ring = Keyring([KeySettings(name="ops", key="ops-secret")], limits_at(self.clock), self.clock)
        self.tokens = TokenAuthenticator(self.clock)
        gateway = FakeServiceGateway()
        gateway.tables["auth"] = AuthSettings(jwt=JwtSettings(issuer=ISSUER, audience="house", **settings))
        assert self.tokens.prepare(gateway)
        self.tokens.keys.use(key_set())
        self.counting = Callers()
        self.counting.keyring = self.ring
        jwt = ActiveAuthenticator(PluginId("authenticator", "jwt"), self.tokens)
        self.callers = asking(self.ring, jwt, accounting=self.counting, clock=self.clock)

    def who(self, token: str) -> Any:
        return self.callers.caller([(b"authorization", b"Bearer " + token.encode())])

    def recall(self, name: str, used: UsageRow) -> None:
        limits = self.callers.limits_of(name)
        assert limits is not None
        self.counting._account(name, limits).recall([used], self.clock())


def jwt_now() -> float:
    """The library reads the machine's clock."""
    return time.time()


def token(key: Any = RSA, algorithm: str = "RS256", kid: str = "rsa", **claims: Any) -> str:
    facts = {"iss": ISSUER, "aud": "house", "sub": "ann", "exp": int(jwt_now()) + 600, **claims}
    facts = {name: value for name, value in facts.items() if value is not None}
    return jwt.encode(facts, key, algorithm, headers={"kid": kid})


def test_a_signed_token_is_a_caller() -> None:
    provider = Provider()
    holder = provider.who(token())
    assert (holder.name, holder.admin, holder.may_use("anything")) == (f"jwt/{ISSUER}/ann", False, True)
    assert provider.who(token(CURVE, "ES256", "ec", sub="ben")).name == f"jwt/{ISSUER}/ben"
    assert provider.who("ops-secret").name == "ops"


def test_what_was_used_before_a_restart_counts_when_its_token_comes() -> None:
    provider = Provider(tokens_per_day=100, budget_per_month=5)
    hour = int(provider.clock()) // 3600 * 3600
    ann, ben = f"jwt/{ISSUER}/ann", f"jwt/{ISSUER}/ben"
    provider.recall(ann, UsageRow(hour, ann, "m", tokens_out=100))
    provider.recall(ben, UsageRow(hour - 40 * 86400, ben, "m", tokens_out=100, cost=5))
    with pytest.raises(RateLimited, match="tokens_per_day"):
        provider.who(token()).admit(Requirements(model="m"), 1)
    provider.who(token(sub="ben")).admit(Requirements(model="m"), 1)


@pytest.mark.parametrize(
    "forged",
    [
        token(OTHER),
        token(iss="https://elsewhere.example.org"),
        token(aud="another house"),
        token(aud=None),
        token(exp=None),
        token(exp=1),
        token(kid="unknown"),
        token("not the secret for this gateway at all", "HS256"),
        token(sub=None),
        token() + "x",
        "a.b.c",
        "..",
    ],
)
def test_other_tokens_are_refused(forged: str) -> None:
    with pytest.raises(Unauthorized):
        Provider().who(forged)


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused() -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _, claims, _ = token().split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').rstrip(b"=").decode()
    mac = hmac.digest(public, f"{head}.{claims}".encode(), "sha256")
    with pytest.raises(Unauthorized):
        Provider().who(f"{head}.{claims}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")


def test_an_unsigned_token_is_refused() -> None:
    with pytest.raises(Unauthorized):
        Provider().who(jwt.encode({"iss": ISSUER, "aud": "house", "sub": "ann", "exp": 1 << 40}, "", "none"))


def test_claims_give_models_and_the_rights_of_operators() -> None:
    provider = Provider(models_claim="models", admin_claim="groups=ops", name_claim="email")
    ann = provider.who(token(email="ann@example.org", models=["qwen*"], groups=["dev", "ops"]))
    assert ann.name == f"jwt/{ISSUER}/ann@example.org"
    assert (ann.admin, ann.may_use("qwen:7b"), ann.may_use("llama")) == (True, True, False)
    with pytest.raises(Forbidden):
        ann.admit(Requirements(model="llama"), None)
    ben = provider.who(token(email="ben@example.org", groups=["dev"]))
    assert (ben.admin, ben.may_use("qwen:7b")) == (False, False), "a token without the claim may use no model"
    assert Provider(admin_claim="admin").who(token(admin=True)).admin
    assert not Provider(admin_claim="admin").who(token(admin="no")).admin


@pytest.mark.parametrize(("claim", "may_operate"), [("groups=ops", True), ("", False)])
def test_a_provider_whose_tokens_name_operators_has_some(claim: str, may_operate: bool) -> None:
    assert Provider(admin_claim=claim).tokens.has_operators() is may_operate


def test_each_caller_has_limits_of_its_own() -> None:
    provider = Provider(requests_per_minute=1)
    for name in ("ann", "ben"):
        provider.who(token(sub=name)).admit(Requirements(model="m"), None)
        with pytest.raises(RateLimited):
            provider.who(token(sub=name, jti="another")).admit(Requirements(model="m"), None)


def test_rights_belong_to_a_token_and_limits_to_its_subject() -> None:
    provider = Provider(admin_claim="admin", models_claim="models", requests_per_minute=2)
    operator, plain = token(admin=True, models=["*"]), token(models=["m"])
    for _ in range(2):
        assert (provider.who(operator).admin, provider.who(operator).may_use("other")) == (True, True)
        assert (provider.who(plain).admin, provider.who(plain).may_use("other")) == (False, False)
        provider.who(operator).admit(Requirements(model="m"), None)
    with pytest.raises(RateLimited):
        provider.who(plain).admit(Requirements(model="m"), None)


def admits(holder: KeyHolder) -> bool:
    try:
        holder.admit(Requirements(model="m"), None)
    except RateLimited:
        return False
    return True


def test_a_subject_that_is_named_as_a_key_is_another_caller() -> None:
    provider = Provider(requests_per_minute=1)
    provider.ring.configure([KeySettings(name="ann", key="ann-secret", requests_per_minute=5)])
    shown = [provider.who("ann-secret"), provider.who(token())]
    assert [[admits(holder) for _ in range(9)].count(True) for holder in shown] == [5, 1]
    assert [holder.name for holder in shown] == ["ann", f"jwt/{ISSUER}/ann"]


def test_a_token_that_was_good_expires() -> None:
    provider = Provider()
    good = token()
    assert provider.who(good).name == f"jwt/{ISSUER}/ann"
    provider.clock.now += 600 + 31
    with pytest.raises(Unauthorized, match="expired"):
        provider.who(good)


async def test_keys_are_fetched_again_when_a_token_names_an_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, asked = Provider(), []
    pages: dict[str, dict[str, Any]] = {
        f"{ISSUER}/.well-known/openid-configuration": {"jwks_uri": f"{ISSUER}/keys"},
        f"{ISSUER}/keys": {"keys": [{**key_set()["keys"][0], "kid": "new"}]},
    }

    def read(url: str) -> dict[str, Any]:
        asked.append(url)
        return pages[url]

    monkeypatch.setattr("enginehouse_callers.token_authenticator._read", read)
    await provider.tokens.refresh()
    assert provider.who(token(kid="new")).name == f"jwt/{ISSUER}/ann"
    await provider.tokens.refresh()
    assert len(asked) == 2, "ten minutes have not passed"
    with pytest.raises(Unauthorized):
        provider.who(token(kid="newer"))
    provider.clock.now += 11
    await provider.tokens.refresh()
    assert len(asked) == 4


async def test_keys_stay_while_the_provider_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()

    def away(url: str) -> dict[str, Any]:
        raise OSError("connection refused")

    monkeypatch.setattr("enginehouse_callers.token_authenticator._read", away)
    for _ in range(3):
        await provider.tokens.refresh()
        provider.clock.now += 601
    assert caplog.text.count("connection refused") == 1
    provider.clock.now -= 3 * 601
    assert provider.who(token()).name == f"jwt/{ISSUER}/ann"


def test_a_page_that_is_no_key_set_changes_nothing() -> None:
    provider = Provider()
    with pytest.raises(ValueError, match="not a key set"):
        provider.tokens.keys.use({"error": "not found"})
    assert provider.who(token()).name == f"jwt/{ISSUER}/ann"


def test_an_algorithm_of_another_kind_of_key_is_refused() -> None:
    provider = Provider()
    for forged in (token(CURVE, "ES256", "rsa"), token(RSA, "RS256", "ec"), token(RSA, "PS512", "ec")):
        with pytest.raises(Unauthorized, match="not valid"):
            provider.who(forged)
    _, claims, sign = token().split(".")
    for head in (
        b'{"alg":"EdDSA","kid":"rsa"}',
        b'{"alg":7,"kid":"rsa"}',
        b'{"alg":"RS256","kid":["rsa"]}',
        b"[]",
        b"\xff",
    ):
        shown = f"{base64.urlsafe_b64encode(head).rstrip(b'=').decode()}.{claims}.{sign}"
        with pytest.raises(Unauthorized):
            provider.who(shown)


def test_keys_stay_known_when_other_settings_change() -> None:
    provider = Provider()
    gateway = FakeServiceGateway()
    gateway.tables["auth"] = AuthSettings(jwt=JwtSettings(issuer=ISSUER, audience="house", requests_per_minute=9))
    provider.tokens.prepare(gateway)
    assert provider.who(token()).name == f"jwt/{ISSUER}/ann"
    gateway.tables["auth"] = AuthSettings(jwt=JwtSettings(issuer=ISSUER, audience="house", jwks_url="http://other"))
    provider.tokens.prepare(gateway)
    with pytest.raises(Unauthorized):
        provider.who(token())


@pytest.mark.parametrize("name", ["an\ud800n", "ann\nforged", "an\x1b[2Jn", "ann\u2028"])
def test_a_name_that_no_store_or_log_can_take_is_refused(name: str) -> None:
    with pytest.raises(Unauthorized, match="characters"):
        Provider().who(token(sub=name))


def test_names_of_people_are_names() -> None:
    for name in ("Änne Müller", "山田 太郎", "ann\u00a0b"):
        assert Provider().who(token(sub=name)).name == f"jwt/{ISSUER}/{name}"


async def test_keys_are_fetched_although_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, asked = Provider(), []

    def read(url: str) -> dict[str, Any]:
        asked.append(url)
        return key_set()

    monkeypatch.setattr("enginehouse_callers.token_authenticator._read", read)
    provider.tokens._settings = JwtSettings(issuer=ISSUER, audience="house", jwks_url=f"{ISSUER}/keys")
    for _ in range(2):
        await provider.tokens.refresh()
        provider.clock.now -= 86_400
    assert len(asked) == 2
