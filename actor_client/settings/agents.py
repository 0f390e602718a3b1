"""Rules for the names of agents, and the settings of `rollcast act pettingzoo`."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple, Self

from pydantic import field_validator, model_validator
from rollcast.limits import behavior_name_fault

from actor_client.settings.commands import CommonSettings, EnvironmentSettings, Names, Script


class Rule(NamedTuple):
    """One `PATTERN=VALUE` of a command line.

    Attributes:
        pattern: A pattern of names with `*`, `?` and `[...]`.
        value: The value for such names.
    """

    pattern: str
    value: str


def split_rule(text: str) -> Rule:
    """Returns the pattern and the value of `PATTERN=VALUE`; a text without `=` is the value of all names."""
    pattern, _, value = text.rpartition("=")
    return Rule(pattern.strip() or "*", value.strip())


def match(rules: Sequence[Rule], name: object) -> str | None:
    """Returns the value of the first rule that matches a name; None if none does.

    Args:
        rules: The rules.
        name: A text; PettingZoo also names agents by numbers.
    """
    text = str(name)
    return next((rule.value for rule in rules if fnmatchcase(text, rule.pattern)), None)


MAX_TEAM: Final = 2**31 - 1


class RuleSettings(CommonSettings):
    """Settings of every command whose agents get behaviors and teams by rules."""

    behavior: Names = ()
    team: Names = ()
    opponent: Script | None = None

    @field_validator("behavior")
    @classmethod
    def _check_behaviors(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            name = split_rule(text).value
            if (fault := behavior_name_fault(name)) is not None:
                raise ValueError(f"the behavior {name!r} {fault}; write PATTERN=NAME")
        return value

    @field_validator("team")
    @classmethod
    def _check_teams(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            team = split_rule(text).value
            if not re.fullmatch(r"[0-9]{1,10}", team) or int(team) > MAX_TEAM:
                raise ValueError(
                    f"team {team!r} is not a number from 0 to {MAX_TEAM}; write PATTERN=NUMBER, as in player_1=1"
                )
        return value

    @property
    def behavior_rules(self) -> tuple[Rule, ...]:
        """Names of behaviors by patterns of names."""
        return tuple(map(split_rule, self.behavior))

    @property
    def team_rules(self) -> tuple[Rule, ...]:
        """Numbers of teams by patterns of names."""
        return tuple(map(split_rule, self.team))


class PettingZooSettings(RuleSettings, EnvironmentSettings):
    """Settings of `rollcast act pettingzoo`; the flags of the same names explain them."""

    group: Names = ()
    group_reward: Literal["own", "sum", "mean"] = "own"

    @field_validator("group")
    @classmethod
    def _check_groups(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not split_rule(text).value:
                raise ValueError(f"{text!r} has no name of a group; write PATTERN=NAME")
        return value

    @model_validator(mode="after")
    def _check_group_reward(self) -> Self:
        if self.group_reward != "own" and not self.group:
            raise ValueError(f"group_reward {self.group_reward} needs groups: add --group 'PATTERN=NAME'")
        return self

    @property
    def group_rules(self) -> tuple[Rule, ...]:
        """Names of groups by patterns of agents' names."""
        return tuple(map(split_rule, self.group))
