"""make_plan: the one pure function from (recipe, site, concurrency) to a plan."""

from __future__ import annotations

import json
import math
import string

from serve_repro.command import Command
from serve_repro.errors import UserError
from serve_repro.plan import model, sizes
from serve_repro.plan.bindings import MEANINGS
from serve_repro.plan.client import client_plan, smoke_reasons
from serve_repro.plan.serve import serve_command
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.runners import RUNNERS
from serve_repro.runtimes import RUNTIMES


def make_plan(recipe: Recipe, site: Site, concurrency: int) -> model.Plan:
    """Everything that one point will do, without doing any of it.

    Raises:
        UserError: recipe and site do not fit each other.
    """
    _check_fit(recipe, site, concurrency)
    ranks = _rank_plans(recipe, site, concurrency)
    reasons = smoke_reasons(recipe.replay)
    client = client_plan(recipe, concurrency, smoke=bool(reasons))
    deadlines = recipe.deadlines
    expect = _expectations(recipe, site, reasons)
    # Two stops: the client's export, then the ranks.
    seconds = deadlines.boot_limit_s + deadlines.first_tokens_s + client.limit_s + 2 * deadlines.stop_s
    return model.Plan(
        recipe=recipe.name,
        site=site.name,
        concurrency=concurrency,
        image=RUNTIMES[site.runtime].image(recipe),
        runtime=site.runtime,
        runner=site.runner,
        cache_root=site.cache_root,
        nodes=site.nodes or [],
        patches=recipe.patches,
        topology=_topology(recipe, site),
        memory=_memory(recipe, site),
        ports=model.Ports(first=site.ports.first, last=site.ports.last, api=site.ports.api),
        needs=_needs(site),
        bindings=used_bindings(ranks, client),
        ranks=ranks,
        readiness=model.Readiness(
            boot_stall_s=deadlines.boot_stall_s,
            boot_limit_s=deadlines.boot_limit_s,
            first_tokens_s=deadlines.first_tokens_s,
            stop_s=deadlines.stop_s,
        ),
        client=client,
        expect=expect,
        request=model.Request(nodes=len(ranks), runtime_min=math.ceil(seconds / 60)),
        warnings=_warnings(recipe, site),
    )


def _check_fit(recipe: Recipe, site: Site, concurrency: int) -> None:
    if recipe.accelerator != site.accelerators.kind:
        raise UserError(
            f"recipe {recipe.name} is for another accelerator than this site has",
            where=f"config/sites/{site.name}.yaml: accelerators.kind",
            expected=recipe.accelerator,
            found=site.accelerators.kind,
        )
    if concurrency not in recipe.concurrencies:
        raise UserError(
            f"the recipe has no point at concurrency {concurrency}",
            where=f"config/recipes/{recipe.name}.yaml: concurrencies",
            expected=f"one of {recipe.concurrencies}",
            found=concurrency,
        )
    needed = sizes.server_ranks(recipe.topology, site.accelerators.per_node)
    if site.runner == "srun" and site.nodes is not None and len(site.nodes) < needed:
        raise UserError(
            f"recipe {recipe.name} needs more nodes than the site names",
            where=f"config/sites/{site.name}.yaml: nodes",
            expected=f"{needed} nodes",
            found=site.nodes,
        )


def _rank_plans(recipe: Recipe, site: Site, concurrency: int) -> list[model.RankPlan]:
    runtime = RUNTIMES[site.runtime]
    image = runtime.image(recipe)
    count = sizes.server_ranks(recipe.topology, site.accelerators.per_node)
    plans = []
    for rank in range(count):
        serve = serve_command(recipe, site, rank, count, runtime.view)
        name = f"serve-repro-{recipe.name}-conc{concurrency}-${{RUN_ID}}-r{rank}"
        plans.append(
            model.RankPlan(
                rank=rank,
                role="headless" if rank else "api",
                prefix=RUNNERS[site.runner],
                start=runtime.start(serve, image, name, site),
                cleanup=runtime.cleanup(name, site),
                left=runtime.left and runtime.left(name, site),
                first_process=runtime.first_process and runtime.first_process(name, site),
            )
        )
    return plans


def _topology(recipe: Recipe, site: Site) -> model.Topology:
    per_node = site.accelerators.per_node
    return model.Topology(
        tensor_parallel=recipe.topology.tensor_parallel,
        pipeline_parallel=recipe.topology.pipeline_parallel,
        world_size=sizes.world_size(recipe.topology),
        accelerator=recipe.accelerator,
        accelerators_per_node=sizes.accelerators_on_node(recipe.topology, per_node),
    )


def _needs(site: Site) -> model.NodeNeeds:
    runtime, container = RUNTIMES[site.runtime], site.container
    # Docker's daemon sets the limits of a container; with the others, ranks have their caller's.
    limits = container.ulimits if container and site.runtime != "docker" else {}
    return model.NodeNeeds(
        accelerator=site.accelerators.kind,
        gpus=0 if site.accelerators.kind == "cpu" else site.accelerators.per_node,
        rdma=site.env.get("NCCL_IB_HCA"),
        memlock=limits.get("memlock", "").startswith("-1"),
        containers=runtime.left and runtime.left("serve-repro-.*", site),
    )


def _memory(recipe: Recipe, site: Site) -> model.Memory | None:
    if recipe.kv_offload is None:
        return None
    gigabytes, per_rank = sizes.offload_bytes_per_rank(recipe.kv_offload, recipe.topology, site)
    return model.Memory(dram_gb_per_node=gigabytes, kv_offload_bytes_per_rank=per_rank)


def _expectations(recipe: Recipe, site: Site, reasons: list[str]) -> model.Expectations:
    offload, speculation = recipe.kv_offload, recipe.speculation
    memory = _memory(recipe, site)
    return model.Expectations(
        served_name=recipe.model.served_name,
        max_model_len=recipe.serve.max_model_len,
        prefix_caching=recipe.serve.prefix_caching,
        async_scheduling=recipe.serve.async_scheduling,
        kv_offload_connector=offload.connector if offload else None,
        kv_offload_bytes_per_rank=memory.kv_offload_bytes_per_rank if memory else None,
        kv_offload_blocks=(
            sizes.offload_blocks(offload.layout, memory.kv_offload_bytes_per_rank)
            if offload and offload.layout and memory
            else None
        ),
        kv_blocks_may_differ=offload.blocks_may_differ if offload else False,
        speculation=speculation.method if speculation else None,
        acceptance_length=speculation.acceptance_length if speculation else None,
        max_error_ratio=recipe.replay.failed_request_threshold,
        validity="smoke" if reasons else "submission",
        validity_reasons=reasons,
    )


def used_bindings(ranks: list[model.RankPlan], client: model.ClientPlan) -> dict[str, str]:
    """The names that these commands leave to the launch, with their meanings."""
    commands = [client.command]
    for rank in ranks:
        commands += [Command(argv=rank.prefix), rank.start, *rank.cleanup]
    text = json.dumps([command.model_dump() for command in commands])
    used = set(string.Template(text).get_identifiers()) & MEANINGS.keys()
    return {name: meaning for name, meaning in MEANINGS.items() if name in used}


def _warnings(recipe: Recipe, site: Site) -> list[str]:
    told = []
    graphs = recipe.compilation.cuda_graphs if recipe.compilation else None
    sequences = recipe.serve.flags.get("max-num-seqs")
    if graphs and recipe.speculation and isinstance(sequences, int):
        rows = sequences * (recipe.speculation.draft_tokens + 1)
        if rows > graphs.capture_max:
            told.append(
                f"max-num-seqs {sequences} x {recipe.speculation.draft_tokens + 1} rows = {rows} is "
                f"above the largest captured graph ({graphs.capture_max}): full batches run without one"
            )
    if site.container and site.container.privileged and site.runtime != "process":
        told.append("the site runs containers with --privileged")
    return told
