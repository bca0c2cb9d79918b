"""`workload.transformer`: the shape of a language model, from which its sizes, memory and seconds follow."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from planner.contract import WithLaterKeys
from planner.inputs.huggingface.transformer import Transformer

Attention = Literal["eager", "flash"]
Loss = Literal["eager", "half", "hf", "fused", "chunked"]
# Bounds far outside anything real, and far below what overflows.
_Count = Annotated[int, Field(ge=1, le=10**7)]
_EXPERTS = ("experts", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


class TransformerShape(WithLaterKeys):
    """A decoder of equal blocks. With it a plan chooses how the model is spread over GPUs."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"longest_sequence"})

    layers: Annotated[int, Field(ge=1, le=10**4)] = Field(description="blocks")
    width: _Count = Field(description="of the residual stream")
    heads: _Count = Field(description="of attention, for queries")
    key_value_heads: _Count | None = Field(default=None, description="default: as many as heads")
    feed_forward_width: _Count = Field(description="of the hidden layer between two blocks' attentions")
    vocabulary: _Count = Field(description="tokens that can be predicted, padding included")
    sequence_length: _Count = Field(description="tokens of a sample")
    longest_sequence: _Count | None = Field(default=None, description="tokens that the model can read; default: any")
    tied_embeddings: bool = Field(default=False, description="the output layer shares the embedding's weights")
    gated: bool = Field(default=True, description="SwiGLU and RMS norms as Llama has; false: GELU and layer norms")
    attention: Attention = Field(default="flash", description="eager keeps the scores of every pair of tokens")
    loss: Loss = Field(
        default="eager",
        description="how cross entropy is computed, which decides what a logit takes: in fp32, by Hugging Face's "
        "Trainer, by a fused kernel, or in chunks",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_experts(cls, keys: object) -> object:
        if isinstance(keys, dict) and any(key in _EXPERTS for key in keys):
            raise ValueError("mixtures of experts are not supported: what their experts hold varies with the tokens")
        return keys

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width:,} cannot be divided among {self.heads:,} heads")
        if self.heads % self.key_value_heads_or_default:
            raise ValueError(f"{self.heads:,} heads cannot share {self.key_value_heads:,} key-value heads evenly")
        return self

    @model_validator(mode="after")
    def _can_read_a_sample(self) -> Self:
        if self.longest_sequence is not None and self.sequence_length > self.longest_sequence:
            raise ValueError(
                f"a sequence_length of {self.sequence_length:,}: the model reads at most {self.longest_sequence:,}"
            )
        return self

    @property
    def key_value_heads_or_default(self) -> int:
        return self.key_value_heads or self.heads

    @property
    def key_width(self) -> int:
        """Of all keys together."""
        return self.width // self.heads * self.key_value_heads_or_default

    @property
    def counted(self) -> Transformer:
        """By formula; positions and biases are not counted, a thousandth of a model that has them."""
        words = self.vocabulary * self.width
        return Transformer(
            tokens=self.sequence_length,
            layers=self.layers,
            width=self.width,
            query_width=self.width,
            key_width=self.key_width,
            mlp_width=self.feed_forward_width,
            gated=self.gated,
            query_bias=False,
            output_bias=False,
            mlp_bias=False,
            embedding_parameters=words,
            head_parameters=0 if self.tied_embeddings else words,
            head_weights=words,
            logits=self.vocabulary,
        )

    def adapter_parameters(self, rank: int) -> int:
        """Of one block: LoRA on queries and values."""
        return rank * (2 * self.width + self.width + self.key_width)
