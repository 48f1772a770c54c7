#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One QSA decode step of one layer on a CPU in plain PyTorch, to compare `qsa bench` with: matmul, topk, gather, attention.

    python3 bench/peers/torch_step.py --n 131072 --threads 8 [--compile]

Prints one JSON object: the median microseconds of a step and of its stages, over layers that are visited in turn so that
nothing stays in the last-level cache. K/V and keys are bf16 (PyTorch has no int8_g64); selection is contract BLOCKS.
"""
import argparse
import json
import statistics
import time

import torch

Q_HEADS, KV_HEADS, DIM, INDEX_HEADS, INDEX_DIM, BLOCK, TOP = 24, 2, 256, 4, 128, 4, 512


def make_layer(n):
    """K, V [kv_heads][n][dim] and block keys [n / 4][128]: what the gather and the matmul like best."""
    k = torch.randn(KV_HEADS, n, DIM, dtype=torch.bfloat16)
    v = torch.randn(KV_HEADS, n, DIM, dtype=torch.bfloat16)
    return k, v, torch.randn(n // BLOCK, INDEX_DIM, dtype=torch.bfloat16)


def score(iq, keys):
    return torch.relu(iq @ keys.T).float().sum(0)


def select(scores):
    return torch.topk(scores, TOP, sorted=False).indices.sort().values


def attend(q, gate, k, v, blocks):
    cells = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    picked_k, picked_v = k.index_select(1, cells), v.index_select(1, cells)
    q = q.view(KV_HEADS, Q_HEADS // KV_HEADS, DIM)
    o = torch.nn.functional.scaled_dot_product_attention(q, picked_k, picked_v)
    return o.reshape(Q_HEADS, DIM).float() * torch.sigmoid(gate)


def step(q, gate, iq, layer):
    k, v, keys = layer
    return attend(q, gate, k, v, select(score(iq, keys)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=131072, help="cells, a multiple of 4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=24, help="visited in turn")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    layers = [make_layer(args.n) for _ in range(args.layers)]
    q = torch.randn(Q_HEADS, DIM, dtype=torch.bfloat16)
    gate = torch.randn(Q_HEADS, DIM)
    iq = torch.randn(INDEX_HEADS, INDEX_DIM, dtype=torch.bfloat16)
    whole = torch.compile(step) if args.compile else step
    times = {"step": [], "score": [], "select": [], "attend": []}
    with torch.inference_mode():
        for layer in layers[:3]:
            whole(q, gate, iq, layer)
        end = time.monotonic() + args.seconds
        at = 0
        while time.monotonic() < end or at < 2 * args.layers:
            layer = layers[at % args.layers]
            start = time.perf_counter()
            if at // args.layers % 2 == 0 or args.compile:
                whole(q, gate, iq, layer)
                times["step"].append(time.perf_counter() - start)
            else:
                scores = score(iq, layer[2])
                scored = time.perf_counter()
                blocks = select(scores)
                selected = time.perf_counter()
                attend(q, gate, layer[0], layer[1], blocks)
                times["score"].append(scored - start)
                times["select"].append(selected - scored)
                times["attend"].append(time.perf_counter() - selected)
            at += 1
    result = {"n": args.n, "threads": args.threads, "torch": torch.__version__, "compiled": args.compile}
    for name, values in times.items():
        result[name + "_us"] = round(statistics.median(values) * 1e6, 1) if values else None
    print(json.dumps(result))


if __name__ == "__main__":
    main()
