"""Where templates, modules, probes and the embedded catalogue are, however scav was installed."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def embedded_catalog() -> Path:
    return _PACKAGE / "inputs" / "catalog" / "snapshot.json"


def load_templates(name: str) -> dict[str, str]:
    """The Jinja sources of one kind of workspace, by the name of the file they become."""
    folder = _asset_folder("templates") / name
    return {path.name.removesuffix(".j2"): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.j2"))}


def load_starter_job() -> str:
    return (_asset_folder("templates") / "job" / "scav.yaml").read_text(encoding="utf-8")


def probes_parent() -> Path:
    """The folder from which `import probes` works; in a wheel it holds nothing else."""
    installed = _PACKAGE / "_assets" / "on_path"
    return installed if installed.is_dir() else _PACKAGE.parent


def load_module(name: str) -> dict[str, str]:
    """A Terraform module's files by relative path, without its tests and whatever Terraform and Python left behind."""
    folder = _asset_folder("modules") / name
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.as_posix(): (folder / path).read_text(encoding="utf-8")
        for path in paths
        if path.parts[0] != "tests" and not any(_is_debris(part) for part in path.parts)
    }


def _is_debris(name: str) -> bool:
    """pip compiles every .py file of a wheel that it installs, those of modules too."""
    return name == "__pycache__" or name.startswith(".terraform") or ".tfstate" in name


def _asset_folder(kind: str) -> Path:
    """Inside the package in a wheel, beside it in a checkout."""
    installed = _PACKAGE / "_assets" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind
