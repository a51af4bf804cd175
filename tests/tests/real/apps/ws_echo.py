"""A WebSocket server that echoes every message, with compression as the library offers it."""

import asyncio
import sys

from websockets.asyncio.server import serve


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=2**25):
        await asyncio.Event().wait()


asyncio.run(main())
