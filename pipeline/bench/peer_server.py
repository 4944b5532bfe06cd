"""The server that our serving is compared with: sentence-transformers behind FastAPI, as its users write it.

python -m pipeline.bench.peer_server CHECKPOINT PORT THREADS
"""

import sys

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class PeerBody(BaseModel):
    """Texts to embed."""

    inputs: list[str]


def main(checkpoint: str, port: int, threads: int) -> None:
    """Serve until the process ends."""
    torch.set_num_threads(threads)
    uvicorn.run(_app(checkpoint), host="127.0.0.1", port=port, log_level="error")


def _app(checkpoint: str) -> FastAPI:
    """Return the application. FastAPI answers requests in threads, so several are computed at the same time."""
    from sentence_transformers import SentenceTransformer

    model, app = SentenceTransformer(checkpoint, device="cpu"), FastAPI()

    @app.post("/embed")
    def embed(body: PeerBody) -> list[list[float]]:
        return model.encode(body.inputs, normalize_embeddings=True, show_progress_bar=False).tolist()

    @app.get("/health")
    def health() -> dict[str, bool]:
        return {"ready": True}

    return app


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
