"""From the keys of a Hugging Face configuration to the shape of its model, family by family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.inputs.huggingface.transformer import Transformer

LONGEST_ASSUMED = 8192  # tokens; more is what a model may read one day, seldom what it is trained on
_LARGEST = 10**9  # of any number: far above every model, far below what overflows
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says; a number that is missing or absurd is named with its key."""

    keys: Mapping[str, Any]
    file: str
    sequence_length: int | None = None

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.keys.get(key)
        value = default if value is None else value
        if value is None:
            raise self.error("this key is required", key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise self.error(f"{str(value)[:40]!r} is not a whole number from {least} to {_LARGEST:,}", key)
        return value

    def head_width(self, width: int, key: str) -> int:
        """Of each of so many heads, which share the width."""
        heads = self.count(key)
        if width % heads:
            raise self.error(f"a width of {width:,} cannot be divided among {heads:,} heads", key)
        return width // heads

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.keys.get(key)
        return default if value is None else bool(value)

    def error(self, message: str, key: str | None = None) -> InputError:
        return InputError(message, file=self.file, key=key)

    @property
    def labels(self) -> int:
        named = self.keys.get("id2label")
        return self.count("num_labels", len(named) if isinstance(named, Mapping) and named else 2)

    def tokens(self, most: int) -> int:
        """As asked, else all that the model can read, unless that is absurd."""
        asked = self.sequence_length
        if asked is not None and asked > most:
            raise InputError(f"{asked:,} tokens: the model reads at most {most:,}", file=self.file)
        return asked or min(most, LONGEST_ASSUMED)

    def head(self, *known: str) -> str:
        """What the model ends in, by the name of its class; the first one known where none is said."""
        said = self.keys.get("architectures") or [known[0]]
        name = said[0] if isinstance(said, list) and isinstance(said[0], str) else str(said)
        found = next((suffix for suffix in known if name.endswith(suffix)), None)
        if found is None:
            raise self.error(f"{name[:60]!r} is none that scav can count: *{', *'.join(known)}", "architectures")
        return found


def shape_of(configuration: Configuration) -> Transformer:
    kind = configuration.keys.get("model_type")
    for key in _EXPERTS:
        if (configuration.keys.get(key) or 0) not in (0, 1):
            raise configuration.error("mixtures of experts are not supported: their experts wait for each other", key)
    if not isinstance(kind, str) or kind not in FAMILIES:
        if "moe" in str(kind) or kind == "mixtral":
            raise configuration.error(
                f"{str(kind)[:40]!r} is a mixture of experts, which scav cannot plan", "model_type"
            )
        raise configuration.error(f"{str(kind)[:40]!r} is none that scav knows: {', '.join(FAMILIES)}", "model_type")
    shape = FAMILIES[kind](configuration)
    if shape.tokens < 1:
        raise configuration.error("no tokens are left", "image_size")
    return shape


def _gpt2(configuration: Configuration) -> Transformer:
    width, vocabulary = configuration.count("n_embd"), configuration.count("vocab_size")
    if configuration.keys.get("n_head") is not None:
        configuration.head_width(width, "n_head")
    positions = configuration.count("n_positions", configuration.count("n_ctx", 1024))
    head = configuration.head("LMHeadModel", "ForSequenceClassification", "Model")
    own = {"LMHeadModel": vocabulary * width * (not configuration.flag("tie_word_embeddings", default=True))}
    return Transformer(
        tokens=configuration.tokens(positions),
        layers=configuration.count("n_layer"),
        width=width,
        query_width=width,
        key_width=width,
        mlp_width=configuration.count("n_inner", 4 * width),
        gated=False,
        query_bias=True,
        output_bias=True,
        mlp_bias=True,
        dropout=bool(configuration.keys.get("resid_pdrop", 0.1)),
        gelu_in_steps=configuration.keys.get("activation_function", "gelu_new") == "gelu_new",
        embedding_parameters=(vocabulary + positions) * width,
        head_parameters=own.get(head, width * configuration.labels if head != "Model" else 0),
        head_weights=vocabulary * width if head == "LMHeadModel" else 0,
        logits=vocabulary if head == "LMHeadModel" else 0,
    )


def _gated(
    configuration: Configuration,
    *,
    key_value_heads: int | None = None,
    head_width: int | None = None,
    query_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    head_norm: bool = False,
) -> Transformer:
    """Llama and what was built like it."""
    width, vocabulary = configuration.count("hidden_size"), configuration.count("vocab_size")
    heads = configuration.count("num_attention_heads")
    if head_width is None and configuration.keys.get("head_dim") is None:
        head_width = configuration.head_width(width, "num_attention_heads")
    each = configuration.count("head_dim", head_width)
    head = configuration.head("ForCausalLM", "ForSequenceClassification", "Model")
    own = {"ForCausalLM": vocabulary * width * (not configuration.flag("tie_word_embeddings", default=False))}
    return Transformer(
        tokens=configuration.tokens(configuration.count("max_position_embeddings")),
        layers=configuration.count("num_hidden_layers"),
        width=width,
        query_width=heads * each,
        key_width=configuration.count("num_key_value_heads", key_value_heads or heads) * each,
        mlp_width=configuration.count("intermediate_size"),
        gated=True,
        query_bias=query_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        head_norm=each if head_norm else 0,
        embedding_parameters=vocabulary * width,
        head_parameters=own.get(head, width * configuration.labels if head != "Model" else 0),
        head_weights=vocabulary * width if head == "ForCausalLM" else 0,
        logits=vocabulary if head == "ForCausalLM" else 0,
    )


def _llama(configuration: Configuration) -> Transformer:
    bias = configuration.flag("attention_bias", default=False)
    mlp_bias = configuration.flag("mlp_bias", default=False)
    return _gated(configuration, query_bias=bias, output_bias=bias, mlp_bias=mlp_bias)


def _mistral(configuration: Configuration) -> Transformer:
    return _gated(configuration, key_value_heads=8)


def _qwen2(configuration: Configuration) -> Transformer:
    return _gated(configuration, query_bias=True)


def _qwen3(configuration: Configuration) -> Transformer:
    bias = configuration.flag("attention_bias", default=False)
    return _gated(configuration, head_width=128, query_bias=bias, output_bias=bias, head_norm=True)


def _bert(configuration: Configuration) -> Transformer:
    width, vocabulary = configuration.count("hidden_size"), configuration.count("vocab_size")
    if configuration.keys.get("num_attention_heads") is not None:
        configuration.head_width(width, "num_attention_heads")
    positions = configuration.count("max_position_embeddings", 512)
    types = configuration.count("type_vocab_size", 2, least=0)
    head = configuration.head("ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "Model")
    pooler, masked = width**2 + width, head in {"ForMaskedLM", "ForPreTraining"}
    tied = configuration.flag("tie_word_embeddings", default=True)
    words = width**2 + 3 * width + vocabulary + (0 if tied else vocabulary * width)
    return Transformer(
        tokens=configuration.tokens(positions),
        layers=configuration.count("num_hidden_layers"),
        width=width,
        query_width=width,
        key_width=width,
        mlp_width=configuration.count("intermediate_size"),
        gated=False,
        query_bias=True,
        output_bias=True,
        mlp_bias=True,
        dropout=bool(configuration.keys.get("hidden_dropout_prob", 0.1)),
        embedding_parameters=(vocabulary + positions + types + 2) * width,
        final_norm=False,
        head_parameters={
            "ForMaskedLM": words,
            "ForPreTraining": words + pooler + 2 * width + 2,
            "ForSequenceClassification": pooler + (width + 1) * configuration.labels,
            "Model": pooler,
        }[head],
        head_weights=masked * (width**2 + vocabulary * width),
        logits=masked * vocabulary,
    )


def _vit(configuration: Configuration) -> Transformer:
    width, patch = configuration.count("hidden_size"), configuration.count("patch_size", 16)
    if configuration.keys.get("num_attention_heads") is not None:
        configuration.head_width(width, "num_attention_heads")
    patches = (configuration.count("image_size", 224) // patch) ** 2
    pixels = configuration.count("num_channels", 3) * patch**2
    if configuration.sequence_length is not None:
        raise InputError(
            f"an image is {patches + 1:,} tokens, whatever --sequence-length says", file=configuration.file
        )
    bias = configuration.flag("qkv_bias", default=True)
    head = configuration.head("ForImageClassification", "Model")
    return Transformer(
        tokens=patches + 1,
        layers=configuration.count("num_hidden_layers"),
        width=width,
        query_width=width,
        key_width=width,
        mlp_width=configuration.count("intermediate_size"),
        gated=False,
        query_bias=bias,
        output_bias=True,
        mlp_bias=True,
        dropout=bool(configuration.keys.get("hidden_dropout_prob", 0.0)),
        embedding_parameters=pixels * width + width + (patches + 2) * width,
        patch_weights=pixels * width,
        head_parameters=(width + 1) * (configuration.labels if head == "ForImageClassification" else width),
    )


FAMILIES: dict[str, Callable[[Configuration], Transformer]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "bert": _bert,
    "vit": _vit,
}
