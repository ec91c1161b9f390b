"""Which ops reach out of the graph: files, network, code. Names and judgements, no parsing.

Every op that TensorFlow has registered is judged: can a graph give it the name of a file, a folder,
an address or a process? Those to which it cannot are in `harmless_ops.txt`. A test walks that
registry and fails for an op that is not judged. A list of dangers can never be complete. It warns;
what protects is the sandbox.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from sojourn.probes.model_files.graphs import Node
from sojourn.probes.model_files.meta_graphs import MetaGraph
from sojourn.probes.model_files.named_files import CACHES, RESTORES, TABLES_FROM_FILES, NamedFiles
from sojourn.probes.model_files.summary import Finding, Severity
from sojourn.probes.model_files.wire import shown


def _named(what: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), what)


RUNS_CODE, READS, WRITES, NETWORK = "runs code", "reads files", "writes files", "uses the network"
HARMLESS = "harmless"

_DANGEROUS = {
    **_named(
        RUNS_CODE,
        "PyFunc PyFuncStateless EagerPyFunc RemoteFusedGraphExecute XlaCustomCall XlaCustomCallV2 "
        "XlaHostCompute _XlaHostComputeMlir MlirPassthroughOp _TPUCompileMlir TRTEngineOp",
    ),
    **_named("ends the process", "Abort WorkerHeartbeat"),
    **_named("runs a graph that is hidden in a string", "DatasetFromGraph"),
    **_named(
        WRITES,
        "WriteFile SaveDataset SaveDatasetV2 DatasetToTFRecord ExperimentalDatasetToTFRecord "
        "CreateSummaryFileWriter CreateSummaryDbWriter SnapshotDataset SnapshotDatasetV2 "
        "DistributedSave DumpTensor CalibrationStatisticsSaver StoreMinibatchStatisticsInFdo "
        "GetMinibatchesInCsrWithPhysicalReplica GetMinibatchSplitsWithPhysicalReplica",
    ),
    **_named(
        READS,
        "ReadFile MatchingFiles MatchingFilesDataset ExperimentalMatchingFilesDataset "
        "WholeFileReader WholeFileReaderV2 TextLineReader TextLineReaderV2 TFRecordReader "
        "TFRecordReaderV2 FixedLengthRecordReader FixedLengthRecordReaderV2 LMDBReader "
        "TextLineDataset TFRecordDataset TFRecordDatasetV2 FixedLengthRecordDataset "
        "FixedLengthRecordDatasetV2 LMDBDataset ExperimentalLMDBDataset SqlDataset "
        "ExperimentalSqlDataset CSVDataset CSVDatasetV2 ExperimentalCSVDataset LoadDataset "
        "RecordInput ImmutableConst LoadAndRemapMatrix GenerateVocabRemapping "
        "ListSnapshotChunksDataset SnapshotChunkDataset SnapshotDatasetReader "
        "SnapshotNestedDatasetReader Skipgram InitializeTRTResource",
    ),
    **_named(
        NETWORK,
        "RpcCall RpcClient RpcServer RpcServerStart RpcServerRegister DataServiceDataset "
        "DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4 RegisterDataset "
        "RegisterDatasetV2 RemoteCall Send Recv _Send _Recv _HostSend _HostRecv "
        "ConnectTPUEmbeddingHosts ConfigureDistributedTPU ConfigureAndInitializeGlobalTPU "
        "_ConfigureDistributedTPU _InitializeHostForDistributedTPU _WaitForDistributedTPU "
        "_DisconnectHostFromDistributedTPUSystem _ShutdownDistributedTPU ShutdownDistributedTPU "
        "ShutdownTPUSystem",
    ),
    **_named("changes how files are reached", "FileSystemSetConfiguration"),
}
# What a saver needs, so that every SavedModel has them. Not fine when they run at another time.
_SAVER = {
    **_named(WRITES, "Save SaveSlices SaveV2 MergeV2Checkpoints"),
    **_named(READS, "Restore RestoreSlice RestoreV2 DTensorRestoreV2"),
}
# Only some of their attributes lead out: the attribute, what is harmless in it, and what it does.
_BY_ATTRIBUTE = {
    "PrintV2": ("output_stream", ("stdout", "stderr", "log(", "stdin"), WRITES),
    "DebugIdentity": ("debug_urls", (), WRITES),
    "DebugIdentityV2": ("debug_urls", (), WRITES),
    "DebugIdentityV3": ("debug_urls", (), WRITES),
    "DebugNanCount": ("debug_urls", (), WRITES),
    "DebugNumericSummary": ("debug_urls", (), WRITES),
    "DecodeProtoV2": ("descriptor_source", ("local://", "bytes://"), READS),
    "EncodeProto": ("descriptor_source", ("local://", "bytes://"), READS),
    "FixedUnigramCandidateSampler": ("vocab_file", (), READS),
}
# What it computes is not looked into here. Models that were exported from JAX are such.
_NOTED = _named("runs a compiled module", "XlaCallModule")
WHEN_LOADING = "when loading"
_MOST_STEPS = 5_000_000
_MOST_DETAILS = 10_000
_MOST_MOMENTS = 20
_Verdict = tuple[Severity, str, str]
_Finding = tuple[Severity, str, str, str]


def judge(meta: MetaGraph) -> list[Finding]:
    """Everything in a graph that reaches out of it, and when it would run."""
    when = _moments(meta)
    # What every saver does when it is asked to is fine there, and nowhere else.
    restoring = {id(node) for node in meta.graph.reachable(meta.restore_ops)}
    saving = {id(node) for node in meta.graph.reachable(meta.save_ops)}
    files = NamedFiles(meta)
    counted: Counter[_Finding] = Counter()
    moments: dict[_Finding, set[str]] = {}
    for node in meta.graph.every_node():
        own = when.get(id(node), [])
        verdict: _Verdict | None
        if node.op in TABLES_FROM_FILES:
            # The path of an asset is fed while the init op runs, and at no other time.
            is_fed = id(node) not in restoring and {*own} <= {WHEN_LOADING}
            verdict = _verdict_on_table(files.not_assets(node), bool(meta.assets) and is_fed)
        elif node.op in CACHES:
            verdict = _verdict_on_cache(files.not_assets(node))
        else:
            verdict = _verdict(node, bool(own), id(node) in restoring)
            if node.op in RESTORES and id(node) in restoring:
                verdict = _verdict_on_restore(files.not_checkpoint(node)) or verdict
        named = [(shown(node.op), verdict)] if verdict else []
        # TensorFlow takes an op for a branch or a body, as if it were a function.
        for called in {*node.calls()[1:]} - meta.graph.functions.keys():
            does = judgement(shown(called))
            if does and does != HARMLESS:
                named.append((shown(called), ("danger", does, "named as a function")))
        for op, (severity, what, detail) in named:
            # Details and moments are reported, but not without end: a file may have any number.
            key = (severity, what, op, detail if len(counted) < _MOST_DETAILS else "")
            counted[key] += 1
            times = moments.setdefault(key, set())
            times.update([WHEN_LOADING] if id(node) in restoring else own[:1])
            times.update(["when saving"] if id(node) in saving else [])
            times.update(own[: max(0, _MOST_MOMENTS - len(times))])
    return [
        *_odd_assets(meta),
        *(
            Finding(severity, what, op, ", ".join(sorted(moments[key])), detail, count)
            for key, count in counted.items()
            for severity, what, op, detail in [key]
        ),
    ]


def _odd_assets(meta: MetaGraph) -> Iterator[Finding]:
    for asset in meta.assets:
        path = PurePosixPath(asset.filename)
        if path.is_absolute() or ".." in path.parts:
            detail = "an asset that leads out of the model"
            yield Finding("danger", READS, asset.filename, WHEN_LOADING, detail)


def _moments(meta: MetaGraph) -> dict[int, list[str]]:
    """When which node runs, by its identity; not what a saver does for itself."""
    signatures = meta.signature_tensors.items()
    roots = [(f"signature {shown(name[:200])}", tensors) for name, tensors in signatures]
    if not roots:  # then any of it may be asked for, but a saver is not asked for its parts
        names = (name for name in meta.graph.nodes if not name.startswith((b"save/", b"save_")))
        roots = [("when run", list(names))]
    # One walk for all where there are many: many walks of a large graph never end.
    if len(roots) * (meta.graph.node_count + meta.graph.input_count) > _MOST_STEPS:
        roots = [("signature (any)", [tensor for _, tensors in roots for tensor in tensors])]
    when: dict[int, list[str]] = {}
    for moment, tensors in ((WHEN_LOADING, meta.init_ops), *roots):
        for node in meta.graph.reachable(tensors):
            when.setdefault(id(node), []).append(moment)
    return when


def _verdict_on_table(not_assets: list[str], can_be_asset: bool) -> _Verdict:
    if not_assets:
        return "danger", READS, f"a table, from {', '.join(not_assets[:3])}"
    if can_be_asset:
        return "note", READS, "a table, from the model's assets"
    return "danger", READS, "a table, and not when assets are there"


def _verdict_on_restore(others: list[str]) -> _Verdict | None:
    return ("danger", READS, f"restores from {', '.join(others[:3])}") if others else None


def _verdict_on_cache(files: list[str]) -> _Verdict | None:
    named = [file for file in files if file]
    if named:
        return "danger", WRITES, f"a cache, to {', '.join(named[:3])}"
    if files:
        return None  # without a name it is in memory
    return "note", WRITES, "a cache, if it is given a file name"


def _verdict(node: Node, runs: bool, restores: bool) -> _Verdict | None:
    op = shown(node.op)
    if op in _DANGEROUS:
        return "danger", _DANGEROUS[op], ""
    if op in _SAVER:
        if runs or (restores and _SAVER[op] == WRITES):
            return "danger", _SAVER[op], "outside of saving and restoring"
        return "note", _SAVER[op], "as every saver does"
    if op in _NOTED:
        return "note", _NOTED[op], ""
    if op in _BY_ATTRIBUTE:
        attribute, harmless, what = _BY_ATTRIBUTE[op]
        if node.has_placeholder(attribute):
            return "danger", what, f"{attribute} is said where its function is called"
        for value in node.texts(attribute):
            if value and not value.startswith(harmless):
                where = NETWORK if value.startswith("grpc://") else what
                return "danger", where, f"{attribute} is {value[:200]}"
    return None


def judgement(op: str) -> str | None:
    """What an op can do beside computing, `HARMLESS` for nothing; None if it was not judged."""
    for judged in (_DANGEROUS, _SAVER, _NOTED):
        if op in judged:
            return judged[op]
    if op in _BY_ATTRIBUTE:
        return _BY_ATTRIBUTE[op][2]
    if op.encode() in TABLES_FROM_FILES:
        return READS
    if op.encode() in CACHES:
        return WRITES
    return HARMLESS if op in known_ops() else None


@functools.cache
def known_ops() -> frozenset[str]:
    """The ops that have been judged and found harmless."""
    return frozenset(Path(__file__).with_name("harmless_ops.txt").read_text("utf-8").split())


def unknown_ops(meta: MetaGraph, known: frozenset[str], ops: Iterable[str]) -> list[Finding]:
    """Ops that are not judged: they come from a library of their own, or a newer TensorFlow."""
    own = {shown(name) for name in meta.graph.functions}
    return [
        Finding("note", "unknown op", op, detail="not one that TensorFlow is known to have")
        for op in sorted(ops)
        if op not in known and op not in own and judgement(op) is None
    ]
