"""`familiar models`: list network architectures and the shipped bundles."""

from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import print_json
from familiar.cli.options import json_option

if TYPE_CHECKING:
    from pathlib import Path

    from familiar.models.catalog import NetworkSpec
    from familiar.models.sizes import NetworkSize


@click.command()
@click.argument("name", required=False)
@click.option("--shipped", is_flag=True, help="List the shipped bundles instead; with NAME, print its model card.")
@json_option
def models(
    name: str | None,
    shipped: bool,
    as_json: bool,
) -> None:
    """List network architectures and their sizes.

    With NAME, print that network layer by layer, as Keras summarizes one: the parameters of a batch norm include its
    running mean and variance, which are not trained.

    \b
    Example:
      familiar models mobilenetv3_small_100
      familiar models --shipped
    """
    if shipped:
        _print_shipped(name, as_json)
        return
    from familiar.models.catalog import NETWORKS, network_spec

    if name is not None:
        _print_layers(name, network_spec(name), as_json)
        return
    sizes = {key: spec.size() for key, spec in NETWORKS.items()}
    if as_json:
        print_json([_row(key, NETWORKS[key], size) for key, size in sizes.items()])
        return
    click.echo(f"{'name':24} {'input':>5} {'dim':>4} {'trainable':>12} {'total':>12} {'flops':>14}")
    for key, size in sizes.items():
        spec = NETWORKS[key]
        click.echo(
            f"{key:24} {spec.input_px:>5} {spec.embedding_dim:>4} {size.trainable:>12,} {size.total:>12,} "
            f"{size.flops:>14,}  {spec.summary}"
        )


def _row(name: str, spec: "NetworkSpec", size: "NetworkSize") -> dict[str, str | int]:
    return {
        "name": name,
        "input_px": spec.input_px,
        "embedding_dim": spec.embedding_dim,
        "trainable": size.trainable,
        "total": size.total,
        "flops": size.flops,
    }


def _print_layers(name: str, spec: "NetworkSpec", as_json: bool) -> None:
    size, rows = spec.size(), spec.layers()
    if as_json:
        layers = [
            {"layer": row.name, "kind": row.kind, "output": row.output, "parameters": row.parameters} for row in rows
        ]
        print_json(_row(name, spec, size) | {"summary": spec.summary, "layers": layers})
        return
    click.echo(f"{name}: {spec.summary}\n")
    wide = max(len(row.name) for row in rows)
    click.echo(f"{'layer':{wide}}  {'kind':18} {'output':>12} {'parameters':>12}")
    for row in rows:
        shape = "x".join(map(str, row.output))
        click.echo(f"{row.name:{wide}}  {row.kind:18} {shape:>12} {row.parameters:>12,}")
    click.echo(f"\nTotal params:         {size.total:>12,}")
    click.echo(f"Trainable params:     {size.trainable:>12,}")
    click.echo(f"Non-trainable params: {size.total - size.trainable:>12,}")
    click.echo(f"Multiply-adds:        {size.flops:>12,}")


def _print_shipped(name: str | None, as_json: bool) -> None:
    from familiar.embedding import zoo

    files = zoo.shipped_bundles()
    if name is not None:
        card = zoo.model_card(name)
        if as_json:
            print_json(_bundle_row(files[name]) | {"card": card})
        else:
            click.echo(card, nl=False)
        return
    rows = [_bundle_row(path) for path in files.values()]
    if as_json:
        print_json(rows)
        return
    click.echo(f"{'name':24} {'bytes':>10} {'input':>5} {'dim':>4} {'weights':12} trained on")
    for row in rows:
        click.echo(
            f"{row['name']:24} {row['size_bytes']:>10,} {row['input_px']:>5} {row['embedding_dim']:>4} "
            f"{row['precision']:12} {', '.join(row['trained_on'])}"
        )


def _bundle_row(path: "Path") -> dict[str, Any]:
    from familiar.embedding.bundle import load_bundle

    bundle = load_bundle(path)
    metadata = bundle.metadata
    return {
        "name": path.stem,
        "size_bytes": len(bundle.onnx),
        "input_px": metadata.preprocessing.size_px,
        "embedding_dim": metadata.embedding_dim,
        "precision": metadata.precision,
        "network": metadata.network,
        "trained_on": list(metadata.trained_on),
        "license": metadata.license,
        "space_id": metadata.space_id,
    }
