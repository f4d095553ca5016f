"""What jaxtyping checks the package with while tests run: beartype, taking an int where a float is meant."""

from beartype import BeartypeConf
from beartype import beartype as checker

beartype = checker(conf=BeartypeConf(is_pep484_tower=True))
