"""A phone's adb daemon, standard library only.

It runs as process 1 of the phone's own namespaces, where the rest of SnapGate does not exist: this package must never
import anything outside itself and the standard library, and uses relative imports only.
"""
