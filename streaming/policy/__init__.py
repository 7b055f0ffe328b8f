"""What each audience may learn of whom, when and roughly where: a document, its checks, and its resolution to views.

`document` tells the language, `resolution` which rule decides, `soundness` what is refused so that a place never shows by silence, and
`edits` what users may say of themselves.
"""

from streaming.policy.deployment import Audience, Deployment
from streaming.policy.edits import Edit, Editable, load_edit, parse_edit
from streaming.policy.policy import Policy, load_policy, parse_policy, read_policy
from streaming.policy.problems import PolicyError
from streaming.policy.resolution import View
from streaming.policy.resolver import Resolver

__all__ = [
    "Audience",
    "Deployment",
    "Edit",
    "Editable",
    "Policy",
    "PolicyError",
    "Resolver",
    "View",
    "load_edit",
    "load_policy",
    "parse_edit",
    "parse_policy",
    "read_policy",
]
