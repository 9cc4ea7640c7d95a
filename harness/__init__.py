"""SnapGate: tells a device lab whether an LLM may ship on a Snapdragon phone.

The product is called SnapGate and its command is ``snapgate``; this import package is called ``harness``.
"""

__version__ = "0.1.0"
