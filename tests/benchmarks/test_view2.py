"""Tests of LFW's View 2: whom each of the ten trainings learns from, and the pairs that judge it."""

from pathlib import Path

from papers import view2

from familiar.datasets import DataSpec, read_lfw_pairs


def test_reads_folds_of_different_sizes():
    lines = ["2", "1", "Ann_Lee\t3", "2", "Bo\t1", "Cy_Dee\t2"]
    assert view2.folds_of_people(lines) == [["Ann_Lee"], ["Bo", "Cy_Dee"]]


def test_no_training_learns_from_the_people_of_its_pairs(tmp_path: Path):
    lfw = tmp_path / "photos" / "lfw_112"
    names = [f"person_{fold}_{side}" for fold in range(view2.FOLDS) for side in "ab"]
    for name in names:
        for photo in (1, 2):
            (lfw / name).mkdir(parents=True, exist_ok=True)
            (lfw / name / f"{name}_{photo:04}.jpg").touch()
    people, pairs = [str(view2.FOLDS)], [f"{view2.FOLDS}\t{view2.PAIRS // 2}"]
    for fold in range(view2.FOLDS):
        first, second = f"person_{fold}_a", f"person_{fold}_b"
        people += ["2", f"{first}\t2", f"{second}\t2"]
        pairs += [f"{first}\t1\t2"] * (view2.PAIRS // 2) + [f"{first}\t1\t{second}\t2"] * (view2.PAIRS // 2)
    (lfw / "people.txt").write_text("\n".join(people))
    (lfw / "pairs.txt").write_text("\n".join(pairs))
    folder = tmp_path / "runs" / "view2"
    view2.write_folds(lfw, folder)
    table = DataSpec((str(lfw),)).read()
    for fold in range(view2.FOLDS):
        chosen = (folder / f"people-without-{fold}.txt").read_text().split()
        assert sorted({*names} - {*chosen}) == [f"person_{fold}_a", f"person_{fold}_b"]
        tested = read_lfw_pairs(folder / f"pairs-{fold}.txt", table)
        assert tested.same.sum() == len(tested.left) - tested.same.sum() == view2.PAIRS // 2
        assert {table.names[label].rpartition("/")[2] for label in table.labels[tested.left]} == {f"person_{fold}_a"}
    recipes = {view2.training(name, 3).options[1] for name in view2.RECIPES}
    assert recipes == {"RUNS/view2/people-without-3.txt"}
