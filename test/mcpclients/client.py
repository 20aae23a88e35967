"""Lists the tools of an MCP server and calls whoami, on the official Python library.

    client.py URL MODE        MODE: legacy, auto or 2026-07-28; the token is in $TOKEN

With $SIGN_IN the person signs in, as sign_in.mjs describes. It prints one JSON object: version,
tools, text and meta of the answer.
"""
import asyncio
import json
import os
import sys
from urllib.parse import parse_qsl, urlsplit

from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken


class Kept:
    """What the program has kept of an earlier sign-in, and of how it is known."""

    def __init__(self, known: dict) -> None:
        self.tokens = known.get("tokens") and OAuthToken.model_validate(known["tokens"])
        self.client = known.get("client_id") and OAuthClientInformationFull(client_id=known["client_id"])

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def sign_in(url: str, known: dict) -> OAuthClientProvider:
    back: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nThis page can be closed.")
        writer.close()
        back.set_result(request.decode().split()[1])

    async def show(to: str) -> None:
        print("open", to, file=sys.stderr, flush=True)

    async def came_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**dict(parse_qsl(urlsplit(await back).query)))

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    metadata = OAuthClientMetadata(redirect_uris=[f"http://127.0.0.1:{port}/callback"], client_name="Desk", token_endpoint_auth_method="none")
    return OAuthClientProvider(url, metadata, Kept(known), show, came_back, client_metadata_url=known.get("document"))


async def main(url: str, mode: str) -> None:
    known = json.loads(os.environ["SIGN_IN"])
    if known is not None:
        http = create_mcp_http_client(auth=await sign_in(url, known))
    else:
        http = create_mcp_http_client(headers={"Authorization": "Bearer " + os.environ["TOKEN"]})
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("whoami", {}, meta={"onbehalf/request_key": os.environ["KEY"]})
        print(json.dumps({
            "version": client.protocol_version,
            "tools": [t.name for t in tools.tools],
            "text": answer.content[0].text,
            "isError": answer.is_error,
            "meta": answer.meta,
        }))


asyncio.run(main(*sys.argv[1:]))
