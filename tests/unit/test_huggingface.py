"""Jobs from configurations: counts that agree with the published ones and, to the last parameter, with transformers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import InputError
from planner.inputs.huggingface.described import described_model
from planner.inputs.huggingface.families import LONGEST_ASSUMED, Configuration, shape_of
from planner.inputs.huggingface.transformer import Transformer
from planner.models.doubt import FACTORS

LLAMA_2_7B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
QWEN2_05B = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
# As published with each model, but for keys that change no size.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "vocab_size": 50257,
    },
    "Llama-2-7b": LLAMA_2_7B,
    "Meta-Llama-3-8B": {
        **LLAMA_2_7B,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "vocab_size": 128256,
    },
    "Mistral-7B-v0.1": {
        **LLAMA_2_7B,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
    },
    "Qwen2-0.5B": QWEN2_05B,
    "Qwen3-0.6B": {
        **QWEN2_05B,
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "head_dim": 128,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "max_position_embeddings": 40960,
    },
    "bert-base-uncased": {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 2,
        "vocab_size": 30522,
    },
    "vit-base-patch16-224": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_dropout_prob": 0.0,
        "hidden_size": 768,
        "image_size": 224,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_channels": 3,
        "num_hidden_layers": 12,
        "patch_size": 16,
        "qkv_bias": True,
        "id2label": {str(label): f"label {label}" for label in range(1000)},
    },
}
# Millions of parameters as the model cards say them.
PUBLISHED = {
    "gpt2": 124,
    "Llama-2-7b": 6738,
    "Meta-Llama-3-8B": 8030,
    "Mistral-7B-v0.1": 7242,
    "Qwen2-0.5B": 494,
    "Qwen3-0.6B": 596,
    "bert-base-uncased": 110,
    "vit-base-patch16-224": 86.6,
}
# Beside those of the cards, what changes a count.
VARIANTS = {
    "biases": {**LLAMA_2_7B, "attention_bias": True, "mlp_bias": True},
    "wide heads": {**LLAMA_2_7B, "head_dim": 64},
    "llama classifier": {**LLAMA_2_7B, "architectures": ["LlamaForSequenceClassification"], "num_labels": 7},
    "llama base": {**LLAMA_2_7B, "architectures": ["LlamaModel"]},
    "qwen3 biases": {**CONFIGURATIONS["Qwen3-0.6B"], "attention_bias": True, "tie_word_embeddings": False},
    "gpt2 narrow": {**CONFIGURATIONS["gpt2"], "n_inner": 1000},
    "gpt2 base": {**CONFIGURATIONS["gpt2"], "architectures": ["GPT2Model"]},
    "gpt2 classifier": {**CONFIGURATIONS["gpt2"], "architectures": ["GPT2ForSequenceClassification"]},
    "bert pretraining": {**CONFIGURATIONS["bert-base-uncased"], "architectures": ["BertForPreTraining"]},
    "bert classifier": {**CONFIGURATIONS["bert-base-uncased"], "architectures": ["BertForSequenceClassification"]},
    "bert base": {**CONFIGURATIONS["bert-base-uncased"], "architectures": ["BertModel"]},
    "vit base": {**CONFIGURATIONS["vit-base-patch16-224"], "architectures": ["ViTModel"]},
    "vit without biases": {**CONFIGURATIONS["vit-base-patch16-224"], "qkv_bias": False},
}


def shape(keys: dict[str, Any], sequence_length: int | None = None) -> Transformer:
    return shape_of(Configuration(keys, "config.json", sequence_length))


def built(keys: dict[str, Any]) -> Any:
    """The real model, without a byte of it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.initialization import no_init_weights

    others = {key: value for key, value in keys.items() if key != "model_type"}
    configuration = transformers.AutoConfig.for_model(keys["model_type"], **others)
    configuration._attn_implementation = "eager"
    with torch.device("meta"), no_init_weights():
        model = getattr(transformers, keys["architectures"][0])(configuration)
    model.tie_weights()  # part of what was left out
    return model


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parameters_are_those_of_the_model_card(name: str) -> None:
    assert shape(CONFIGURATIONS[name]).parameters == pytest.approx(PUBLISHED[name] * 1e6, rel=0.01)


# As transformers builds them; a slow test below counts them there.
EXACT = {
    "gpt2": 124_439_808,
    "Llama-2-7b": 6_738_415_616,
    "Meta-Llama-3-8B": 8_030_261_248,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Qwen2-0.5B": 494_032_768,
    "Qwen3-0.6B": 596_049_920,
    "bert-base-uncased": 109_514_298,
    "vit-base-patch16-224": 86_567_656,
    "biases": 6_739_775_488,
    "wide heads": 5_664_673_792,
    "llama classifier": 6_607_372_288,
    "llama base": 6_607_343_616,
    "qwen3 biases": 751_775_744,
    "gpt2 narrow": 86_223_840,
    "gpt2 base": 124_439_808,
    "gpt2 classifier": 124_441_344,
    "bert pretraining": 110_106_428,
    "bert classifier": 109_483_778,
    "bert base": 109_482_240,
    "vit base": 86_389_248,
    "vit without biases": 86_540_008,
}


def test_parameters_of_every_head_to_the_last_one() -> None:
    assert {name: shape(keys).parameters for name, keys in {**CONFIGURATIONS, **VARIANTS}.items()} == EXACT


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("gpt2", ("n_positions", "resid_pdrop", "activation_function")),
        ("gpt2", ("n_positions", "n_ctx")),
        ("Mistral-7B-v0.1", ("num_key_value_heads",)),
        ("Qwen3-0.6B", ("head_dim",)),
        ("bert-base-uncased", ("max_position_embeddings", "type_vocab_size", "hidden_dropout_prob")),
        ("vit-base-patch16-224", ("image_size", "patch_size", "num_channels", "qkv_bias", "hidden_dropout_prob")),
    ],
)
def test_what_a_file_does_not_say_is_what_transformers_takes(name: str, usual: tuple[str, ...]) -> None:
    less = {key: value for key, value in CONFIGURATIONS[name].items() if key not in usual}
    assert shape(less) == shape(CONFIGURATIONS[name])


def test_flops_and_activations_of_bert_and_vit_by_hand() -> None:
    bert, vit = shape(CONFIGURATIONS["bert-base-uncased"]), shape(CONFIGURATIONS["vit-base-patch16-224"])
    blocks, head = 12 * 12 * 768**2, 768**2 + 30522 * 768
    assert bert.flops_per_sample == 6 * 512 * (blocks + head) + 12 * 12 * 768 * 512**2
    kept = 12 * (24 * 768 + 4 * 3072 + 2 * 768) + 6 * 768 + 8 * 30522
    assert bert.activation_bytes_per_sample == 512 * kept
    assert vit.flops_per_sample == 6 * 197 * (blocks + 3 * 16**2 * 768) + 12 * 12 * 768 * 197**2
    assert vit.activation_bytes_per_sample == 197 * (12 * (24 * 768 + 4 * 3072) + 6 * 768)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_flops_per_token_are_six_per_parameter_and_attention(name: str) -> None:
    """Of the parameters, those of a table that is only looked up do not multiply: an untied input embedding."""
    keys, found = CONFIGURATIONS[name], shape(CONFIGURATIONS[name])
    looked_up = 0 if keys.get("tie_word_embeddings", True) else keys["vocab_size"] * keys["hidden_size"]
    attention = 12 * found.layers * found.query_width * found.tokens
    by_hand = 6 * (found.parameters - looked_up) + attention
    assert found.flops_per_sample / found.tokens == pytest.approx(by_hand, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CONFIGURATIONS, *VARIANTS])
def test_parameters_are_exactly_those_of_transformers(name: str) -> None:
    keys = {**CONFIGURATIONS, **VARIANTS}[name]
    real = sum(parameter.numel() for parameter in built(keys).parameters())
    assert shape(keys).parameters == real


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_flops_are_those_that_torch_counts(name: str) -> None:
    """Forward and backward on the meta device, where the shapes are all there is."""
    from torch.utils.flop_counter import FlopCounterMode

    model, found = built(CONFIGURATIONS[name]), shape(CONFIGURATIONS[name], None if "vit" in name else 512)
    with FlopCounterMode(display=False) as counter:
        model(**_inputs(name, found.tokens)).loss.backward()
    assert found.flops_per_sample == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_activations_are_within_the_stated_factor_of_what_transformers_keeps(name: str) -> None:
    """Saved tensors that are no parameters under bf16 autocast with fused attention, in fake memory."""
    keys = {**CONFIGURATIONS[name], "attn_pdrop": 0.0, "attention_probs_dropout_prob": 0.0}
    layers = "n_layer" if "n_layer" in keys else "num_hidden_layers"
    one, two = (_kept_bytes(name, {**keys, layers: count}) for count in (1, 2))
    found = shape(keys, None if "vit" in name else 256)
    block = found.tokens * found._block_bytes
    assert block == pytest.approx(two - one, rel=0.06)  # a CPU's dropout keeps two bytes of each mask, a GPU's one
    kept, factor = one + (found.layers - 1) * (two - one), FACTORS["activation_bytes_per_sample"]["derived"].more
    assert kept / factor < found.activation_bytes_per_sample < kept * factor


def _kept_bytes(name: str, keys: dict[str, Any]) -> float:
    """Per sample: what a second one adds."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights

    others = {key: value for key, value in keys.items() if key != "model_type"}
    configuration = AutoConfig.for_model(keys["model_type"], **others)
    sizes = []
    with FakeTensorMode(allow_non_fake_inputs=True), no_init_weights():
        import transformers

        model = getattr(transformers, keys["architectures"][0])(configuration).train()
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        for batch in (1, 2):
            kept: dict[int, Any] = {}

            def keep(tensor: Any, kept: dict[int, Any] = kept) -> Any:
                storage = tensor.untyped_storage()
                if storage._cdata not in own:
                    kept[storage._cdata] = storage
                return tensor

            hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
            with hooks, torch.autocast("cpu", torch.bfloat16):
                model(**_inputs(name, 256, batch, device="cpu"))
            sizes.append(sum(storage.nbytes() for storage in kept.values()))
    return float(sizes[1] - sizes[0])


def _inputs(name: str, tokens: int, batch: int = 1, device: str = "meta") -> dict[str, Any]:
    import torch

    if "vit" in name:
        labels = torch.zeros(batch, dtype=torch.long, device=device)
        return {"pixel_values": torch.zeros(batch, 3, 224, 224, device=device), "labels": labels}
    words = torch.zeros(batch, tokens, dtype=torch.long, device=device)
    return {"input_ids": words, "labels": words}


def test_a_width_of_heads_that_is_said_need_not_divide() -> None:
    odd = {**LLAMA_2_7B, "hidden_size": 4100, "head_dim": 128}
    assert described_model(json.dumps(odd), file="config.json") is not None


def test_gpt2_by_hand() -> None:
    found = shape(CONFIGURATIONS["gpt2"])
    block = 12 * 768**2 + 13 * 768
    assert found.parameters == 12 * block + (50257 + 1024) * 768 + 2 * 768 == 124_439_808
    weights = 12 * 12 * 768**2 + 50257 * 768
    assert found.flops_per_sample == 6 * 1024 * weights + 12 * 12 * 768 * 1024**2
    kept = 12 * (24 * 768 + 4 * 3072 + 2 * 768 + 6 * 3072) + 6 * 768 + 8 * 50257
    assert found.activation_bytes_per_sample == 1024 * kept


def test_activations_of_gated_blocks_by_hand() -> None:
    """Norms over each head keep their inputs, of queries and keys, in six bytes each; others have none."""
    with_norms, without = (shape(CONFIGURATIONS[name]) for name in ("Qwen3-0.6B", "Llama-2-7b"))
    kept = 28 * (26 * 1024 + 4 * 2048 + 4 * 1024 + 8 * 3072 + 6 * (2048 + 1024)) + 10 * 1024 + 8 * 151_936
    assert with_norms.activation_bytes_per_sample == with_norms.tokens * kept
    kept = 32 * (26 * 4096 + 4 * 4096 + 4 * 4096 + 8 * 11_008) + 10 * 4096 + 8 * 32_000
    assert without.activation_bytes_per_sample == without.tokens * kept


class TestSequenceLength:
    def test_is_what_the_model_reads(self) -> None:
        assert shape(CONFIGURATIONS["gpt2"]).tokens == 1024
        assert shape(CONFIGURATIONS["vit-base-patch16-224"]).tokens == 197

    def test_is_not_what_nobody_trains_on_and_the_file_says_so(self) -> None:
        said = described_model(json.dumps(QWEN2_05B), file="config.json").sample
        assert shape(QWEN2_05B).tokens == LONGEST_ASSUMED == 8192
        assert said == (
            "A sample is a sequence of 8,192 tokens: the model may read 131,072, few train on that; "
            "`--sequence-length` says another length."
        )

    def test_is_what_is_asked(self) -> None:
        assert shape(QWEN2_05B, 131072).tokens == 131072
        said = described_model(json.dumps(QWEN2_05B), file="c", sequence_length=8192).sample
        assert said == "A sample is a sequence of 8,192 tokens."

    def test_is_not_more_than_the_model_reads(self) -> None:
        with pytest.raises(InputError, match="2,048 tokens: the model reads at most 1,024"):
            shape(CONFIGURATIONS["gpt2"], 2048)

    def test_of_an_image_is_its_own(self) -> None:
        with pytest.raises(InputError, match="an image is 197 tokens"):
            shape(CONFIGURATIONS["vit-base-patch16-224"], 100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "t5"},
            "model_type: 't5' is none that scav knows: gpt2, llama, mistral, qwen2, qwen3, bert, vit",
        ),
        ({"model_type": None}, "model_type: 'None' is none that scav knows"),
        ({"model_type": ["llama"]}, "is none that scav knows"),
        ({"model_type": "mixtral"}, "model_type: 'mixtral' is a mixture of experts, which scav cannot plan"),
        ({"model_type": "qwen2_moe"}, "'qwen2_moe' is a mixture of experts"),
        ({"num_local_experts": 8}, "num_local_experts: mixtures of experts are not supported"),
        ({"hidden_size": None}, "config.json: hidden_size: this key is required"),
        ({"hidden_size": "wide"}, "hidden_size: 'wide' is not a whole number from 1 to 1,000,000,000"),
        ({"hidden_size": 0}, "hidden_size: '0' is not a whole number"),
        ({"hidden_size": True}, "hidden_size: 'True' is not a whole number"),
        ({"hidden_size": 4097}, "num_attention_heads: a width of 4,097 cannot be divided among 32 heads"),
        ({"num_attention_heads": 8192}, "num_attention_heads: a width of 4,096 cannot be divided among 8,192 heads"),
        ({"model_type": "bert", "hidden_size": 770}, "a width of 770 cannot be divided among 32 heads"),
        ({"model_type": "gpt2", "n_embd": 770, "n_head": 12}, "n_head: a width of 770 cannot be divided among 12"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers: '1000000000000' is not a whole number"),
        ({"architectures": ["LlamaForQuestionAnswering"]}, "architectures: 'LlamaForQuestionAnswering' is none that"),
        ({"architectures": [7]}, "architectures: '[7]' is none that scav can count: *ForCausalLM, *ForSeq"),
    ],
)
def test_what_cannot_be_counted_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        described_model(json.dumps({**LLAMA_2_7B, **changes}), file="config.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000])
def test_what_is_no_configuration_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"--model takes the config\.json of a Hugging Face model"):
        described_model(text, file="x")


@pytest.mark.parametrize(
    ("said", "name"), [("openai-community/gpt2-XL", "gpt2-xl"), ("./", "llama"), (None, "llama"), (7, "llama")]
)
def test_the_job_is_called_like_the_model(said: object, name: str) -> None:
    assert described_model(json.dumps({**LLAMA_2_7B, "_name_or_path": said}), file="x").name == name
