"""Lists the tools of an MCP server and calls whoami, on the official Python library.

    client.py URL MODE        MODE: legacy, auto or 2026-07-28; the token is in $TOKEN

It prints one JSON object: version, tools, text and meta of the answer.
"""
import asyncio
import json
import os
import sys

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(url: str, mode: str) -> None:
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
