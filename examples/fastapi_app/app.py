"""A FastAPI application in which two requests of one user never overlap, in however many processes it runs.

    cd examples/fastapi_app
    ZK_URL=zk://127.0.0.1:2181/shop ACCOUNTS=/srv/accounts uvicorn app:app --workers 2

A request adds to the user's account, a file that all processes share. It reads the file, awaits something else, and
writes the sum: without the lock, it would overwrite a request that came in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from zkconcurrent import LockLostError, ZkConcurrentError, aio

ACCOUNTS = Path(os.environ["ACCOUNTS"])
PATIENCE = 10.0  # seconds that a request waits for its user's lock
QUERY = 0.005  # seconds that the request awaits something else


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open this process's client when its loop has started, and close it when the server stops."""
    async with aio.connect(os.environ["ZK_URL"]) as app.state.zk:
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(ZkConcurrentError)
async def refuse(request: Request, error: ZkConcurrentError) -> JSONResponse:  # noqa: ARG001 - FastAPI passes it
    """Let the client try again later, unless its hold was lost: then it must look at the account first."""
    return JSONResponse({"detail": str(error)}, 500 if isinstance(error, LockLostError) else 503)


@app.exception_handler(TimeoutError)
async def send_away(request: Request, error: TimeoutError) -> JSONResponse:  # noqa: ARG001 - FastAPI passes them
    """Answer a request that has waited too long for its user's lock."""
    return JSONResponse({"detail": "too many requests of this user"}, 503, {"Retry-After": "1"})


@app.post("/users/{user}/add")
async def add(user: int, amount: int) -> dict[str, int]:
    """Add to a user's account, alone among the requests of this user in all processes."""
    lock = aio.Lock(app.state.zk, f"/users/{user}")
    async with lock.hold(PATIENCE):
        inside, account = ACCOUNTS / f"{user}.inside", ACCOUNTS / str(user)
        inside.touch(exist_ok=False)  # fails if another request of this user is inside
        balance = int(account.read_text()) if account.exists() else 0
        await asyncio.sleep(QUERY)
        balance += amount
        account.write_text(str(balance))
        inside.unlink()
        return {"balance": balance, "token": lock.fencing_token, "process": os.getpid()}
