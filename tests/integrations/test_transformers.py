"""A loss and a recorder in a real Hugging Face Trainer, with a model that is made here: no hub, no network."""

from __future__ import annotations

import importlib
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import mohs
from mohs.data.with_ids import WithIds
from mohs.hardness.recorder import Recorder

transformers = pytest.importorskip("transformers", reason="transformers is not installed (the hf extra)")
shell = import_module("mohs.integrations.transformers")
RecorderCallback, as_compute_loss_func, fuse_output = shell.RecorderCallback, shell.as_compute_loss_func, shell.fuse_output
N, CLASSES = 22, 3


def examples() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "input_ids": torch.randint(20, (6,), generator=generator),
            "labels": int(torch.randint(CLASSES, (1,), generator=generator)),
        }
        for _ in range(N)
    ]


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        num_labels=CLASSES,
    )
    return transformers.BertForSequenceClassification(config)


def train(folder: Path, loss_func: Any, *, callbacks: Any = (), data: Any = None, model: Any = None, **arguments: Any) -> Any:
    settings = {"num_train_epochs": 3, "per_device_train_batch_size": 8, "learning_rate": 0.01, "use_cpu": True, "seed": 0}
    quiet = {
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    trainer = transformers.Trainer(
        model=model or bert(),
        args=transformers.TrainingArguments(output_dir=str(folder), **{**settings, **quiet, **arguments}),
        train_dataset=data or WithIds(examples()),
        eval_dataset=data or WithIds(examples()),
        compute_loss_func=loss_func,
        callbacks=list(callbacks),
    )
    trainer.train()
    return trainer


class Watching:
    """The loss function, with a list of what it was called with while gradients were on."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.steps = inner, []

    def __call__(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.steps.append((self.inner.epoch, self.inner.ids, outputs["logits"].detach().clone(), labels.clone()))
        return self.inner(outputs, labels, num_items_in_batch=num_items_in_batch)


@pytest.mark.parametrize("name", ["cross_entropy", "gce", "gradient_rescaling"])
def test_the_loss_is_the_sum_over_the_items_of_the_whole_step(name: str) -> None:
    logits, labels = torch.randn(6, CLASSES, requires_grad=True), torch.tensor([0, 1, 2, -100, 1, 0])
    func = as_compute_loss_func(mohs.create_loss(name))
    total = mohs.create_loss(name, reduction="sum")(logits, labels)
    for items in (10, torch.tensor(10)):
        torch.testing.assert_close(func({"logits": logits}, labels, num_items_in_batch=items), total / 10)
    torch.testing.assert_close(func((logits,), labels), mohs.create_loss(name)(logits, labels))
    torch.testing.assert_close(func((logits,), labels, 5), mohs.create_loss(name)(logits, labels))  # five that count


def test_accumulated_steps_weigh_every_item_alike() -> None:
    logits, labels = torch.randn(9, CLASSES), torch.randint(CLASSES, (9,))
    func = as_compute_loss_func(nn.CrossEntropyLoss())
    parts = [func((logits[rows],), labels[rows], num_items_in_batch=9) for rows in (slice(0, 2), slice(2, 9))]
    torch.testing.assert_close(sum(parts), cross_entropy(logits, labels))


def test_tokens_are_items() -> None:
    logits, labels = torch.randn(2, 5, CLASSES), torch.randint(CLASSES, (2, 5))
    labels[0, 3:] = -100
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / 8
    torch.testing.assert_close(
        as_compute_loss_func(mohs.CrossEntropyLoss(), shift_labels=False)({"logits": logits}, labels, 8), expected
    )


def gpt2(**settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, **settings
    )
    return transformers.GPT2LMHeadModel(config).eval()


def texts(n: int = 6, length: int = 9) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(50, (n, length), generator=generator)
    labels = tokens.masked_fill(torch.arange(length) >= torch.randint(4, length + 1, (n, 1), generator=generator), -100)
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]


def stacked(items: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([item["input_ids"] for item in items]), torch.stack([item["labels"] for item in items])


@pytest.mark.parametrize("loss", [mohs.CrossEntropyLoss(), nn.CrossEntropyLoss()])
def test_a_causal_model_s_labels_are_shifted_as_its_own_loss_shifts_them(loss: nn.Module) -> None:
    model = gpt2(loss_type="ForCausalLM")
    tokens, labels = stacked(texts())
    items = (labels[:, 1:] != -100).sum()
    func = as_compute_loss_func(loss)
    outputs = model(input_ids=tokens)
    torch.testing.assert_close(func(outputs, labels), model(input_ids=tokens, labels=labels).loss)
    own = model(input_ids=tokens, labels=labels, num_items_in_batch=2 * items).loss
    torch.testing.assert_close(func(outputs, labels, num_items_in_batch=2 * items), own)
    plain = as_compute_loss_func(loss, shift_labels=True)((outputs.logits,), labels)
    torch.testing.assert_close(plain, func(outputs, labels))
    unshifted = as_compute_loss_func(loss, shift_labels=False)(outputs, labels)
    torch.testing.assert_close(unshifted, cross_entropy(outputs.logits.flatten(0, 1), labels.flatten()))


def test_masked_models_are_not_shifted_and_unknown_outputs_must_say() -> None:
    logits, labels = torch.randn(2, 5, CLASSES), torch.randint(CLASSES, (2, 5))
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten())
    func = as_compute_loss_func(mohs.CrossEntropyLoss())
    for kind in ("MaskedLMOutput", "TokenClassifierOutput", "Seq2SeqLMOutput"):
        torch.testing.assert_close(func(getattr(transformers.modeling_outputs, kind)(logits=logits), labels), expected)
    for outputs in ((logits,), {"logits": logits}):
        with pytest.raises(ValueError, match="do not tell whether the model is a causal language model: pass shift_labels"):
            func(outputs, labels)


def test_weights_of_tokens_are_shifted_with_their_labels() -> None:
    model, (tokens, labels) = gpt2(), stacked(texts())
    outputs = model(input_ids=tokens)
    func = as_compute_loss_func(mohs.CrossEntropyLoss())
    by_token = torch.rand(labels.shape)
    each = cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
    kept = (labels[:, 1:] != -100).flatten()
    weights = by_token[:, 1:].flatten()
    expected = (each * weights)[kept].sum() / weights[kept].sum()
    torch.testing.assert_close(func(outputs, labels, sample_weight=by_token), expected)
    torch.testing.assert_close(func(outputs, labels, 7, sample_weight=by_token), (each * weights)[kept].sum() / 7)
    by_text = torch.rand(len(labels))
    torch.testing.assert_close(
        func(outputs, labels, sample_weight=by_text),
        func(outputs, labels, sample_weight=by_text.unsqueeze(1).expand(labels.shape)),
    )


def test_a_causal_model_trains_as_without_mohs_and_records_each_token(tmp_path: Path) -> None:
    items, length = texts(), 9
    recorder = Recorder(len(items), positions=length)
    inner = as_compute_loss_func(mohs.CrossEntropyLoss(), recorder)
    watching = Watching(inner)
    trained = {}
    for name, func, callbacks, data in (
        ("ours", watching, [RecorderCallback(inner)], WithIds(items)),
        ("plain", None, [], items),
    ):
        model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, loss_type="ForCausalLM")
        steps = {"per_device_train_batch_size": 2, "num_train_epochs": 2, "optim": "sgd", "learning_rate": 1.0}
        train(tmp_path, func, callbacks=callbacks, data=data, model=model, **steps)  # Adam would magnify the rounding of zeros
        trained[name] = model
    for (name, a), (_, b) in zip(trained["ours"].named_parameters(), trained["plain"].named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=name)
    by_hand = Recorder(len(items) * length)
    for epoch, ids, logits, labels in watching.steps:
        for i, own, given in zip(ids.tolist(), logits, labels, strict=True):
            kept = [t for t in range(1, length) if given[t] != -100]  # token t is predicted by the logits before it
            by_hand.update([i * length + t for t in kept], own[[t - 1 for t in kept]], given[kept], epoch=epoch)
    recorded = recorder.table().drop_columns(["example", "part"])
    np.testing.assert_equal(recorded.to_pydict(), by_hand.table().to_pydict())
    label = recorder.table().column("label").to_pylist()
    for i, item in enumerate(items):
        given = [None if t == 0 or y == -100 else y for t, y in enumerate(item["labels"].tolist())]
        assert label[i * length : (i + 1) * length] == given


def test_a_fused_output_layer_trains_and_records_as_the_logits_do(tmp_path: Path) -> None:
    items, length, results = texts(), 9, {}
    for fused in (False, True):
        model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        recorder = Recorder(len(items), positions=length)
        output = fuse_output(model) if fused else None
        func = as_compute_loss_func(mohs.GeneralizedCrossEntropyLoss(q=0.5), recorder, output=output)
        steps = {"per_device_train_batch_size": 2, "num_train_epochs": 2, "optim": "sgd", "learning_rate": 1.0}
        train(tmp_path, func, callbacks=[RecorderCallback(func)], data=WithIds(items), model=model, **steps)
        results[fused] = model, recorder.table().to_pandas()
    (plain, seen), (model, seen_fused) = results[False], results[True]
    assert model.lm_head.weight is model.transformer.wte.weight  # still tied
    assert list(model.state_dict()) == list(plain.state_dict())
    for (name, a), (_, b) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=name)
    assert list(seen_fused) == list(seen)
    np.testing.assert_array_equal(seen_fused["label"].to_numpy(), seen["label"].to_numpy())
    for name in ("aum", "margin", "confidence", "mean_confidence"):
        np.testing.assert_allclose(seen_fused[name].to_numpy(float), seen[name].to_numpy(float), rtol=2e-3, atol=1e-4)
    tokens, _ = stacked(items)
    assert model.eval()(input_ids=tokens).logits.shape == (*tokens.shape, 50)  # evaluation has logits
    assert model.train()(input_ids=tokens).logits.shape == (*tokens.shape, 16)  # training leaves them to the loss


def test_what_cannot_be_fused_says_so() -> None:
    with pytest.raises(ValueError, match="Linear has no linear output layer to fuse"):
        fuse_output(nn.Linear(3, 3))
    model = gpt2()
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(ValueError, match=r"config\.final_logit_softcapping"):
        fuse_output(model)
    with pytest.raises(ValueError, match="cannot be fused"):
        as_compute_loss_func(mohs.CrossEntropyLoss(label_smoothing=0.1), output=fuse_output(gpt2()))


def test_the_given_loss_is_unchanged() -> None:
    loss = mohs.GeneralizedCrossEntropyLoss(q=0.5, weight=[1.0, 2.0, 3.0])
    func = as_compute_loss_func(loss)
    assert (loss.reduction, func.mean.reduction, func.total.reduction) == ("mean", "mean", "sum")
    assert func.total.q == 0.5
    assert torch.equal(func.total.weight, loss.weight)
    for other in (lambda outputs, labels: 0, mohs.CrossEntropyLoss(reduction="none")):
        with pytest.raises(ValueError, match="must have a reduction of mean or sum"):
            as_compute_loss_func(other)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_training_is_recorded_and_evaluation_is_not(accumulate: int, tmp_path: Path) -> None:
    recorder = Recorder(N)
    inner = as_compute_loss_func(mohs.GradientRescalingLoss(), recorder)
    func = Watching(inner)
    train(tmp_path, func, callbacks=[RecorderCallback(inner)], gradient_accumulation_steps=accumulate, eval_strategy="epoch")
    assert len(func.steps) == 9
    assert [epoch for epoch, *_ in func.steps] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    alone = Recorder(N)
    for epoch, ids, logits, labels in func.steps:
        alone.update(ids, logits, labels, epoch=epoch)
    assert recorder.table().equals(alone.table())
    assert recorder.table().column("epochs").to_pylist() == [3] * N
    assert recorder.table().column("label").to_pylist() == [item["labels"] for item in examples()]


def test_the_trainer_gives_the_same_result_without_mohs(tmp_path: Path) -> None:
    """Cross-entropy through our function moves the weights as the model's own loss does."""
    ours = train(tmp_path, as_compute_loss_func(mohs.CrossEntropyLoss()), data=examples(), num_train_epochs=1).model
    plain = train(tmp_path, None, data=examples(), num_train_epochs=1).model
    for (name, a), (_, b) in zip(ours.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=name)


def test_the_model_is_restored_after_training(tmp_path: Path) -> None:
    recorder = Recorder(N)
    func = as_compute_loss_func(mohs.CrossEntropyLoss(), recorder)
    model = train(tmp_path, func, callbacks=[RecorderCallback(func)], num_train_epochs=1).model
    assert not model._forward_pre_hooks
    with torch.no_grad():  # and its loss can be had without a record
        value = func(model(torch.zeros(1, 4, dtype=torch.long)), torch.tensor([0]))
    assert value.isfinite()


def test_a_step_without_ids_says_what_to_do(tmp_path: Path) -> None:
    func = as_compute_loss_func(mohs.CrossEntropyLoss(), Recorder(N))
    with pytest.raises(ValueError, match=r'has no ids: give the items an "id".*remove_unused_columns=False'):
        train(tmp_path, func, callbacks=[RecorderCallback(func)], data=examples())
    with pytest.raises(ValueError, match="has no recorder"):
        RecorderCallback(as_compute_loss_func(mohs.CrossEntropyLoss()))


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "mohs.integrations.transformers")
    with pytest.raises(ImportError, match=re.escape("pip install 'mohs[hf]'")):
        importlib.import_module("mohs.integrations.transformers")
