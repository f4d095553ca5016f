"""The checker that jaxtyping runs on the whole package while tests run: beartype, with an int where a float is meant."""

from beartype import BeartypeConf
from beartype import beartype as checker

beartype = checker(conf=BeartypeConf(is_pep484_tower=True))
