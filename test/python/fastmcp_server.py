"""An MCP server on FastMCP: fastmcp_server.py PORT"""

import sys

import anyio
from fastmcp import FastMCP

server = FastMCP("fastmcp")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def fail() -> str:
    raise RuntimeError("this tool fails")


@server.tool
async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "done"


# The banner would ask a registry for a newer version.
server.run("http", show_banner=False, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
