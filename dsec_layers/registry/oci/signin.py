"""Signing in to a registry: basic auth, or tokens that are asked for by what shall be done.

This takes the place of the auth backends of `oras`, which send a token that has expired again and
again, and ask one that may only read to write. A token is kept by its scope until shortly before
it expires. Each 401 gets one new token; when that is refused too, it is an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec
import requests
from oras.auth.utils import parse_auth_header  # type: ignore[import-untyped]

from dsec_layers.errors import StoreError
from dsec_layers.registry.oci import answers
from dsec_layers.registry.oci.credentials import Credentials
from dsec_layers.registry.oci.endpoint import Endpoint

# The protocol's default for a token without a life of its own.
_DEFAULT_LIFE_S: Final = 60
_MARGIN: Final = 0.1
_CLIENT_ID: Final = "dsec-layers"
_MAX_ANSWER_BYTES: Final = 1 << 20


class RefusedError(Exception):
    """The registry's answer is no, whoever asks; `response` tells more."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class _Answer(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: float = _DEFAULT_LIFE_S


@dataclass(frozen=True, slots=True)
class _Token:
    header: str
    until_s: float


class SignIn:
    """What we know of signing in to one registry. Safe for many threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        session: requests.Session,
        find: Callable[[], Credentials | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._session = session
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._basic = ""
        self._tokens: dict[str, _Token] = {}

    def header(self, scope: str) -> dict[str, str]:
        """What to send before being asked: nothing at first."""
        token = self._tokens.get(scope)
        if token is not None and self._clock() < token.until_s:
            return {"Authorization": token.header}
        return {"Authorization": self._basic} if self._basic else {}

    def answer(self, refused: requests.Response, scope: str) -> dict[str, str]:
        """The header to repeat a request with. Raises RefusedError when that is no use."""
        challenge = refused.headers.get("WWW-Authenticate", "")
        sent = refused.request.headers.get("Authorization", "")
        kind = challenge.split(" ")[0].lower()
        if kind not in ("basic", "bearer"):
            raise RefusedError(refused)
        with self._lock:
            known = self.header(scope).get("Authorization", "")
            if known and known != sent:  # somebody else was asked meanwhile
                return {"Authorization": known}
            if kind == "basic":
                self._basic = self._basic_header(refused, sent)
                return {"Authorization": self._basic}
            self._tokens.pop(scope, None)
            token = self._new_token(challenge, scope)
            self._tokens[scope] = token
            return {"Authorization": token.header}

    def _basic_header(self, refused: requests.Response, sent: str) -> str:
        found = self._find()
        if found is None or found.basic == sent or found.identity_token:
            raise RefusedError(refused)
        return found.basic

    def _new_token(self, challenge: str, scope: str) -> _Token:
        asked = parse_auth_header(challenge)
        realm = str(asked.realm or "")
        credentials = self._find()
        if urlsplit(realm).scheme not in ("https", *(["http"] * self._endpoint.plain_http)):
            raise StoreError(f"{self._endpoint.host} sends us to {realm or 'nowhere'} for a token")
        scopes = list(dict.fromkeys([*scope.split(), *str(asked.scope or "").split()]))
        started = self._clock()
        response = self._ask(realm, str(asked.service or ""), scopes, credentials)
        try:
            if response.status_code != requests.codes.ok:
                known = "with the credentials found" if credentials else "without credentials"
                raise StoreError(
                    f"{urlsplit(realm).netloc} gives no token {known}: {answers.told(response)}",
                    hint=answers.sign_in_hint(self._endpoint.host),
                )
            answer = msgspec.json.decode(
                answers.bounded(response, _MAX_ANSWER_BYTES), type=_Answer, strict=False
            )
        except msgspec.DecodeError as error:
            raise StoreError(f"{realm} gave no token but something else") from error
        finally:
            response.close()
        value = answer.token or answer.access_token
        if not value:
            raise StoreError(f"{realm} gave an empty token")
        return _Token(f"Bearer {value}", started + answer.expires_in * (1 - _MARGIN))

    def _ask(
        self, realm: str, service: str, scopes: list[str], credentials: Credentials | None
    ) -> requests.Response:
        verify = self._endpoint.verify
        if credentials is not None and credentials.identity_token:
            form = {
                "grant_type": "refresh_token",
                "service": service,
                "scope": " ".join(scopes),
                "client_id": _CLIENT_ID,
                "refresh_token": credentials.identity_token,
            }
            return self._session.request("POST", realm, data=form, stream=True, verify=verify)
        headers = {"Authorization": credentials.basic} if credentials else {}
        query: Mapping[str, str | list[str]] = {"service": service, "scope": scopes}
        return self._session.request(
            "GET", realm, params=query, headers=headers, stream=True, verify=verify
        )


class SignedCall:
    """The auth backend of one request to `oras`, which knows what shall be done by it."""

    def __init__(self, sign_in: SignIn, scope: str) -> None:
        self._sign_in = sign_in
        self._scope = scope

    def authenticate_request(
        self,
        original: requests.Response,
        headers: dict[str, str],
        refresh: bool = False,
    ) -> tuple[dict[str, str], bool]:
        """Headers to repeat a refused request with, and True; what `oras` asks a backend for."""
        try:
            added = self._sign_in.answer(original, self._scope)
        except RefusedError:
            raise  # with the answer, which is not read yet
        except BaseException:
            answers.finish(original)
            raise
        answers.finish(original)
        return {**headers, **added}, True
