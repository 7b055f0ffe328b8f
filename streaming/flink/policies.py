"""The step that admits policies and users' edits, as Flink calls it."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor
from pyflink.table.udf import ScalarFunction

from streaming.flink.common import EMITTED, log_millis
from streaming.policy import Deployment, Policy
from streaming.policy_admission import Admission, Admitted
from streaming.policy_log import rejected_policy_line
from streaming.settings import Settings

__all__ = ["REJECTED", "VERSIONS", "AdmitPolicies", "LogMillis"]

VERSIONS = Types.ROW([Types.STRING(), Types.LONG(), Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
REJECTED = OutputTag("rejected", EMITTED)


class LogMillis(ScalarFunction):  # type: ignore[misc]
    """Log times -> milliseconds since 1970."""

    def eval(self, log_time: pd.Series) -> pd.Series:
        """Convert a batch."""
        return pd.Series(log_millis(log_time))


class AdmitPolicies(KeyedProcessFunction):  # type: ignore[misc]
    """Records of the topic `policies`, under one key -> what is admitted of them; lines about the others to `REJECTED`.

    On their way here records lose their order. They wait until the topic's clock has passed them, which is before any tick closes in which
    they could hold, and then take their turns by offset: the clock at a record is the highest log time up to it.

    Parameters
    ----------
    settings
        Settings.
    policy
        The policy that holds at first, or None.
    deployment
        What a policy has to fit.
    """

    def __init__(self, settings: Settings, policy: Policy | None, deployment: Deployment) -> None:
        self._settings, self._policy, self._deployment = settings, policy, deployment

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state's handles."""
        blob = Types.PICKLED_BYTE_ARRAY()
        self._clock = runtime_context.get_state(ValueStateDescriptor("clock", Types.LONG()))
        self._waiting = runtime_context.get_map_state(MapStateDescriptor("waiting", Types.LONG(), blob))
        admitted = runtime_context.get_map_state(MapStateDescriptor("admitted", Types.STRING(), blob))
        self._admission = Admission(self._settings, self._policy, self._deployment, admitted)
        self._judged_to: int | None = None

    def process_element(self, value: Row, ctx: Any) -> None:
        """Keep a record: value, log time and offset."""
        record, log_ms, offset = value
        self._waiting.put(offset, (record, log_ms))
        ctx.timer_service().register_event_time_timer(log_ms - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Judge the records that the clock has come to."""
        watermark = ctx.timer_service().current_watermark()
        if watermark == self._judged_to:
            # The first of the timers that fire at one watermark does the work of all.
            return
        self._judged_to = watermark
        clock, names = self._clock.value(), self._settings.topics
        for offset, (record, log_ms) in sorted(self._waiting.items()):
            clock = log_ms if clock is None else max(clock, log_ms)
            if clock > watermark + 1:
                # A watermark is a millisecond behind the clock, and whatever lies before the record that set it is here.
                break
            self._waiting.remove(offset)
            self._clock.update(clock)
            found = self._admission.admit(record, clock)
            if isinstance(found, Admitted):
                yield Row(*found)
            elif found is not None:
                yield REJECTED, Row(names.rejected, rejected_policy_line(found, names.policies, offset, log_ms))
