"""Dropout's coin: a hash of the step's seed, the place in the model and the place in the tensor.

Nothing is kept for the backward pass, which hashes again. The hash is Wellons' lowbias32, twice, keyed in between.
"""

import triton
import triton.language as tl


@triton.jit
def mixed(x):
    """A 32-bit number, every bit of it depending on every bit of x"""
    x = x ^ (x >> 16)
    x = x * 0x21F0AAAD
    x = x ^ (x >> 15)
    x = x * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def kept(seed, place, index, rate):
    """index: int32, any shape -> which of them survive dropout at this rate"""
    step = tl.load(seed)
    low = mixed((step & 0xFFFFFFFF).to(tl.uint32) + place.to(tl.uint32) * 0x9E3779B9)
    high = mixed((step >> 32).to(tl.uint32) ^ low)
    coin = mixed(mixed(index.to(tl.uint32) + low) ^ high)
    return (coin >> 8).to(tl.float32) * (1.0 / 16777216.0) >= rate
