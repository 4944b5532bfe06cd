"""Check each request before it is parsed: its token, and the size and encoding of its body."""

import asyncio
import hashlib
import hmac
import os
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.config.serve import TOKEN, Serve
from pipeline.errors import ConfigError
from pipeline.serve.problems import RequestError, body_of, disconnected, invalid

OPEN = ("/health",)
"""Routes that need no token, because Kubernetes sends none."""


def digest(token: bytes) -> str:
    """Return the SHA-256 of a token, hexadecimal. Ray stores and logs it, and it does not reveal the token."""
    return hashlib.sha256(token).hexdigest()


def token_digest(config: Serve) -> str | None:
    """Return the digest of the token that clients must send; None if they need none.

    Raises ConfigError if other machines can reach the server without a token.
    """
    token = os.environ.get(TOKEN)
    if not token and not config.is_private:
        raise ConfigError(
            f"host ({config.host}) lets other machines ask: set the environment variable {TOKEN} to a secret that "
            "clients must send, or leave host out"
        )
    return digest(token.encode()) if token else None


class Gate:
    """An ASGI application that passes good requests to another one."""

    def __init__(self, app: ASGIApp, token: str | None, most_bytes: int) -> None:
        """`token`: SHA-256 of the token, hexadecimal; None: requests need no token."""
        self.app, self.token, self.most_bytes = app, token, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._require_token(scope)
            body = await self._read(scope, receive)
            await self._answer(_as_json(scope, body), body, receive, send)
        except RequestError as error:
            response = JSONResponse(body_of(error, scope["path"]), error.status)
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Pass a request to the application. Raises RequestError if the client goes before the answer begins.

        The application is then cancelled, so that nobody computes the answer.
        """
        going, begun = asyncio.create_task(_end_of(receive)), False
        parts = iter((body,))

        async def replay() -> Message:
            for part in parts:
                return {"type": "http.request", "body": part, "more_body": False}
            return await going

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        answering = asyncio.ensure_future(self.app(scope, replay, noting))
        try:
            await asyncio.wait((answering, going), return_when=asyncio.FIRST_COMPLETED)
            if begun or answering.done():
                await answering
        finally:
            going.cancel()
            answering.cancel()
        if not answering.done():
            with suppress(asyncio.CancelledError):
                await answering
            raise disconnected()

    def _require_token(self, scope: Scope) -> None:
        """Raise RequestError unless the request has the token, or needs none."""
        if self.token is None or scope["path"] in OPEN:
            return
        given = dict(scope["headers"]).get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(digest(given), self.token):
            message = 'the token is missing or wrong: send the header "Authorization: Bearer TOKEN"'
            raise RequestError(401, "Unauthorized", message, "invalid_api_key")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the request's body.

        Raises RequestError as soon as it is known to be too large, for a compressed one, and if the client goes.
        """
        headers = dict(scope["headers"])
        stated, coding = headers.get(b"content-length", b"0"), headers.get(b"content-encoding", b"identity")
        size, parts = 0, []
        if coding.lower() != b"identity":
            raise invalid(f"Content-Encoding {ascii(coding.decode('latin-1'))} is not read: send plain JSON", 415)
        if stated.isdigit() and int(stated) > self.most_bytes:
            raise self._too_large()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise disconnected()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.most_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> RequestError:
        return invalid(f"the body has more than {self.most_bytes:,} bytes (limits.body): send fewer texts", 413)


async def _end_of(receive: Receive) -> Message:
    """Return the message that the client has gone; after a whole body, no other comes."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return message


def _as_json(scope: Scope, body: bytes) -> Scope:
    """Return the scope with JSON as its Content-Type if the body begins like a JSON object.

    `curl -d` without a header calls it a form. The header protects nothing here: no request changes the server.
    """
    if body.lstrip()[:1] != b"{":
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}
