"""What each audience may learn of whom, when and roughly where: a document, its checks, and its resolution to views.

`document` tells the language, `resolution` which rule decides, `soundness` what is refused so that a place never shows by silence.
"""

from streaming.policy.deployment import Audience, Deployment
from streaming.policy.policy import Policy, load_policy, parse_policy, read_policy
from streaming.policy.problems import PolicyError
from streaming.policy.resolution import View
from streaming.policy.resolver import Resolver

__all__ = [
    "Audience",
    "Deployment",
    "Policy",
    "PolicyError",
    "Resolver",
    "View",
    "load_policy",
    "parse_policy",
    "read_policy",
]
