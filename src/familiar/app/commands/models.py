"""`familiar models`: what can be built."""

import click

from familiar.app.console import print_json
from familiar.app.options import json_option


@click.command()
@click.argument("name", required=False)
@json_option
def models(
    name: str | None,
    as_json: bool,
) -> None:
    """What can be built, and how large it is.

    With a name, that network layer by layer.

    \b
    Example:
      familiar models mobilenetv3_small_100
    """
    from familiar.models.catalog import NETWORKS, layers, measure, network_spec

    if name is not None:
        spec = network_spec(name)
        network = spec.build(spec.input_px, spec.embedding_dim, spec.dropout)
        rows = layers(network, spec.input_px)
        if as_json:
            keys = ("layer", "kind", "output", "parameters")
            print_json([dict(zip(keys, row, strict=True)) for row in rows])
            return
        for layer, kind, shape, parameters in rows:
            click.echo(f"{layer:44} {kind:18} {'x'.join(map(str, shape)):16} {parameters:>10,}")
        return
    rows = []
    for key, spec in NETWORKS.items():
        size = measure(spec.build(spec.input_px, spec.embedding_dim, spec.dropout), spec.input_px)
        row = {"name": key, "input_px": spec.input_px, "embedding_dim": spec.embedding_dim}
        rows.append(row | {"trainable": size.trainable, "total": size.total, "flops": size.flops})
    if as_json:
        print_json(rows)
        return
    click.echo(f"{'name':24} {'input':>6} {'dim':>5} {'trainable':>12} {'total':>12} {'flops':>14}")
    for row in rows:
        click.echo(
            f"{row['name']:24} {row['input_px']:>6} {row['embedding_dim']:>5} {row['trainable']:>12,} "
            f"{row['total']:>12,} {row['flops']:>14,}"
        )
