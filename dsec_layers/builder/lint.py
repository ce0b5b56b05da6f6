"""Advice about a Layerfile that can be built: rules with the names that Docker's build checks have.

A finding changes nothing of what is built. A line `# check=skip=RULE,...;error=true` at the top
leaves rules out (`skip=all`: every one), or makes findings an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dsec_layers.builder.instructions import interpret
from dsec_layers.builder.layerfile import Layerfile
from dsec_layers.builder.lints import forms, names, variables
from dsec_layers.builder.lints.subject import Finding, Rule, Subject
from dsec_layers.builder.patterns import IgnoreRules
from dsec_layers.builder.plan import Plan
from dsec_layers.builder.stages import outline
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.runconfig import RunConfig

RULES: Final[Mapping[str, Rule]] = {
    "StageNameCasing": names.stage_name_casing,
    "FromAsCasing": names.from_as_casing,
    "NoEmptyContinuation": forms.no_empty_continuation,
    "ConsistentInstructionCasing": names.consistent_instruction_casing,
    "DuplicateStageName": names.duplicate_stage_name,
    "ReservedStageName": names.reserved_stage_name,
    "JSONArgsRecommended": forms.json_args_recommended,
    "MaintainerDeprecated": forms.maintainer_deprecated,
    "UndefinedArgInFrom": variables.undefined_arg_in_from,
    "WorkdirRelativePath": forms.workdir_relative_path,
    "UndefinedVar": variables.undefined_var,
    "MultipleInstructionsDisallowed": forms.multiple_instructions,
    "LegacyKeyValueFormat": forms.legacy_key_value_format,
    "RedundantTargetPlatform": variables.redundant_target_platform,
    "SecretsUsedInArgOrEnv": variables.secrets_used,
    "InvalidDefaultArgInFrom": variables.invalid_default_arg_in_from,
    "FromPlatformFlagConstDisallowed": variables.constant_platform,
    "CopyIgnoredFile": forms.copy_ignored_file,
    "ExposeProtoCasing": forms.expose_proto_casing,
}
_ALL: Final = "all"
_LINE_LENGTH: Final = 120


class Advice(msgspec.Struct, frozen=True):
    """All findings in the order of their lines; with `is_error` they are not to be lived with."""

    findings: tuple[Finding, ...]
    is_error: bool

    def raise_if_error(self) -> None:
        """Raise InvalidInputError for the first finding when the Layerfile asks for it."""
        if self.findings and self.is_error:
            first, *others = self.findings
            more = f" (and {len(others)} more)" if others else ""
            raise InvalidInputError(
                f"{first.rule}: {first.message}{more}",
                where=first.where,
                hint="the Layerfile says `check=error=true`; `skip=RULE` leaves a rule out",
            )


def lint(layerfile: Layerfile, plan: Plan, ignored: IgnoreRules) -> Advice:
    """Look at a Layerfile, its plan, and what is left out of its context.

    Raises InvalidInputError for a `# check` line that cannot be understood.
    """
    skipped, is_error = _directive(layerfile)
    statements = interpret(layerfile)
    layers = {
        stage.index: stage.layer.effective_run if stage.layer else RunConfig()
        for stage in plan.stages
    }
    parts = outline(statements, "Layerfile")
    subject = Subject(layerfile, statements, parts, layers, ignored)
    numbers = {it.where: number for number, it in enumerate(layerfile.instructions)}
    findings = [
        Finding(name, message, instruction.where, _one_line(str(instruction)))
        for name, rule in RULES.items()
        if not {name, _ALL} & skipped
        for instruction, message in rule(subject)
    ]
    findings.sort(key=lambda finding: numbers[finding.where])
    return Advice(tuple(findings), is_error)


def _directive(layerfile: Layerfile) -> tuple[frozenset[str], bool]:
    """What the `# check` line says: rules to skip, and whether findings are errors."""
    skipped: frozenset[str] = frozenset()
    is_error = False
    for part in filter(None, map(str.strip, layerfile.check.split(";"))):
        key, _, value = map(str.strip, part.partition("="))
        if key == "skip" and value:
            skipped = frozenset(map(str.strip, value.split(",")))
        elif key == "error" and value.lower() in ("true", "false"):
            is_error = value.lower() == "true"
        elif key != "experimental":  # rules of Docker's that are none of ours
            raise InvalidInputError(
                f"the directive check={layerfile.check} is not understood",
                where=layerfile.check_where,
                hint="write # check=skip=RULE,RULE;error=true",
            )
    return skipped, is_error


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= _LINE_LENGTH else joined[: _LINE_LENGTH - 3] + "..."
