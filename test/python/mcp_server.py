"""An MCP server on the official Python SDK: mcp_server.py PORT"""

import sys

import anyio
from mcp.server import MCPServer

server = MCPServer("mcp", log_level="WARNING")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def fail() -> str:
    raise RuntimeError("this tool fails")


@server.tool()
async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "done"


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
