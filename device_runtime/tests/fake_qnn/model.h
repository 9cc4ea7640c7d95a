// What a stand-in graph computes: a function of everything the runner prepares, small enough to repeat in a
// test.
//
// All arithmetic is on raw elements. For the token `id` at row r, with c and s the first raw cos and sin of
// that row:
//   key[layer, head, dim]   = (3 id + 5 c + 7 head + 11 dim + 13 layer + 1) mod 251
//   value[layer, head, dim] = (2 id + 17 s + 19 head + 23 dim + 29 layer + 2) mod 241
//   sum[r]       = sum of key * value over every visible column, layer, head and dim, modulo 65521
// A shard has the layers whose tensors it names. It puts out or takes in "hidden" (1, N, 2): id and sum so far.
//   logits[r, x] = ((sum[r] + 1) * (x + 1) * 31) mod 31744   (below the bits of infinity in float16)
// A wrong cache column, stride, mask or position changes the logits of every later token.
#pragma once

#include "binary.h"

#include <map>
#include <string>

namespace standin {

using Memory = std::map<std::string, std::byte*>; // by tensor name

// Computes the outputs. Empty on success, else what is wrong with the inputs: a cache column outside the mask
// that does not hold the padding value, a mask element that is neither visible nor masked, a token id outside
// the vocabulary.
std::string compute(const Binary& binary, const BinaryGraph& graph, const Memory& memory, bool nan_logits);

} // namespace standin
