"""What a transformer takes, by formula: parameters, flops and activations of a sample.

    flops       = 6 T (weights that multiply) + 12 layers q T^2     2 forward and 4 backward per weight and token,
                                                                    T tokens, q the width of all queries together
    activations = T (layers * block + ends + 8 V)                   bytes, V logits per token

with the bytes that a block keeps per token, d wide, with an MLP f wide and k the width of all keys together:

    gated, RMS norms    26 d + 4 q + 4 k + 8 f                      + 6 (q + k) with norms of queries and keys
    plain, layer norms  16 d + 8 q + 4 f                            + 2 d with dropout, + 6 f with a GELU in steps

That is what transformers' modules keep under bf16 autocast: residuals in fp32, a cast copy for every linear layer,
fused attention, no recomputation. Leaner modules (fused norms, a bf16 residual) keep two thirds: 16 d + 8 f of a
gated block. Attention is not halved for a causal mask, as torch's flop counter does not. Per logit, the softmax in
fp32 and its gradient are there when the backward pass begins; 4 to 12 bytes have been seen.
"""

from __future__ import annotations

from dataclasses import dataclass

LOGIT_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """One model at one sequence length."""

    tokens: int
    layers: int
    width: int
    query_width: int
    key_width: int
    mlp_width: int
    gated: bool  # and with RMS norms; else plain with layer norms
    query_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norm: int = 0  # weights of a norm over each head's queries, and as many over its keys
    dropout: bool = False
    gelu_in_steps: bool = False
    embedding_parameters: int  # tokens, positions, patches and their norms
    patch_weights: int = 0  # of those, the ones that multiply
    final_norm: bool = True
    head_parameters: int = 0  # beside what the embedding lends it
    head_weights: int = 0  # that multiply every token
    logits: int = 0  # per token

    @property
    def parameters(self) -> int:
        return (
            self.embedding_parameters
            + self.layers * self.block_parameters
            + self.final_norm * self._norm
            + self.head_parameters
        )

    @property
    def block_parameters(self) -> int:
        return self._block_weights + self._block_vectors

    @property
    def flops_per_sample(self) -> float:
        weights = self.layers * self._block_weights + self.patch_weights + self.head_weights
        return 6.0 * self.tokens * weights + 12.0 * self.layers * self.query_width * self.tokens**2

    @property
    def activation_bytes_per_sample(self) -> float:
        ends = (10 if self.gated else 6) * self.width
        return float(self.tokens * (self.layers * self._block_bytes + ends + LOGIT_BYTES * self.logits))

    @property
    def _norm(self) -> int:
        return self.width if self.gated else 2 * self.width

    @property
    def _block_weights(self) -> int:
        """Of its matrices."""
        attention = self.width * (2 * self.query_width + 2 * self.key_width)
        return attention + (3 if self.gated else 2) * self.width * self.mlp_width

    @property
    def _block_vectors(self) -> int:
        """Biases and norms."""
        qkv = self.query_bias * (self.query_width + 2 * self.key_width)
        mlp = self.mlp_bias * ((2 if self.gated else 1) * self.mlp_width + self.width)
        return qkv + self.output_bias * self.width + mlp + 2 * self._norm + 2 * self.head_norm

    @property
    def _block_bytes(self) -> int:
        d, q, k, f = self.width, self.query_width, self.key_width, self.mlp_width
        if self.gated:
            return 26 * d + 4 * q + 4 * k + 8 * f + 6 * (q + k) * bool(self.head_norm)
        return 16 * d + 8 * q + 4 * f + 2 * d * self.dropout + 6 * f * self.gelu_in_steps
