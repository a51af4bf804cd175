"""A FastAPI app with what people use: upload, streaming, WebSocket, errors of its own."""

import asyncio

from fastapi import FastAPI, HTTPException, UploadFile, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

app = FastAPI()
asked = asyncio.Queue()


@app.post("/upload")
async def upload(file: UploadFile):
    return {"name": file.filename, "size": len(await file.read())}


@app.post("/next")
async def another():
    asked.put_nowait(None)
    return "asked"


@app.get("/stream")
async def stream():
    async def pieces():
        for n in range(5):
            await asked.get()
            yield f"piece {n}\n"

    return StreamingResponse(pieces(), media_type="text/plain")


@app.websocket("/ws")
async def echo(socket: WebSocket):
    await socket.accept()
    try:
        while True:
            message = await socket.receive()
            if message.get("text") is not None:
                await socket.send_text(message["text"])
            elif message.get("bytes") is not None:
                await socket.send_bytes(message["bytes"])
            else:
                return
    except WebSocketDisconnect:
        return


@app.get("/teapot")
async def teapot():
    raise HTTPException(status_code=418, detail="short and stout")


@app.get("/crash")
async def crash():
    raise RuntimeError("on purpose")
