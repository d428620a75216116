from tests.claims.lines import JUDGES, of, verdict


def structure(penalty, weight, left, *, r2=0.99, seed=0, task="field"):
    return {"run": {"task": task, "penalty": penalty, "weight": weight, "seed": seed}, "r2": r2, "left": left}


def penalised(left, **changes):
    return [structure("frobenius", 3.0, left, seed=seed, **changes) for seed in (0, 1)]


def test_r1_wants_a_tenth_left_at_equal_fit():
    plain = [structure("none", 0.0, 0.2, seed=seed) for seed in (0, 1)]
    assert verdict("R1", *plain) == "not tested"
    assert verdict("R1", *plain, *penalised(0.01)) == "holds"
    assert verdict("R1", *plain, *penalised(0.03)) == "holds in part"
    assert verdict("R1", *plain, *penalised(0.3)) == "does not hold"
    assert verdict("R1", *plain, penalised(0.01)[0]) == "not tested", "a seed is missing"
    assert verdict("R1", plain[0], *penalised(0.01)) == "holds", "one further"
    assert (
        verdict("R1", *plain, structure("frobenius", 3.0, 0.03), structure("frobenius", 3.0, 0.3, seed=1))
        == "does not hold"
    )
    assert verdict("R1", *plain, *penalised(0.01, r2=0.9)) == "does not hold"
    another = [structure("none", 0.0, 0.2, task="energy"), structure("signed", 3.0, 0.1, task="energy")]
    assert verdict("R1", *plain, *penalised(0.01), *another) == "holds in part"


def spectrum(ours, power, shape=(50, 2000, 64)):
    rows = [{"method": "power", "products": products, "error": error} for products, error in power.items()]
    rows += [{"method": "Golub-Kahan", "products": products, "error": error} for products, error in ours.items()]
    return {"case": "J", "shape": list(shape), "starts": 4, "iters": [2, 4], "rows": rows}


def test_r2_compares_at_equal_products():
    assert verdict("R2", spectrum({4: 0.1, 8: 0.01}, {4: 0.2, 8: 0.1})) == "holds"
    assert verdict("R2", spectrum({4: 0.1, 8: 0.01}, {4: 0.2, 8: 0.1}, (50, 96, 64))) == "holds in part"
    assert verdict("R2", spectrum({4: 0.1, 8: 0.01}, {4: 0.2, 8: 0.1}, (2000, 10, 10))) == "holds in part", "small ones"
    assert verdict("R2", spectrum({4: 0.1, 8: 0.15}, {4: 0.2, 8: 0.3})) == "holds in part"
    assert verdict("R2", spectrum({4: 0.1}, {4: 0.2, 8: 0.1})) == "holds", "Lanczos was not given 8"
    assert verdict("R2", spectrum({4: 0.1}, {8: 0.1})) == "not tested"
    assert verdict("R2", spectrum({4: 0.0}, {4: 0.2})) == "holds", "no error to be a multiple of"
    assert verdict("R2", spectrum({4: 0.3, 8: 0.31}, {4: 0.2, 8: 0.1})) == "does not hold"


def attacked(method, weight, seed, validation, test):
    return {
        "run": {"data": "digits", "operator": "jacobian", "method": method, "weight": weight, "seed": seed},
        "validation": {"attacks": [["pgd", 0.1, validation]]},
        "test": {"attacks": [["pgd", 0.05, 0.99], ["pgd", 0.1, test], ["square", 0.1, test + 0.01]]},
    }


def test_r3_chooses_weights_on_the_validation_split_and_compares_the_worst_attack():
    def lines(lanczos):
        found = []
        for seed, wobble in enumerate((-0.01, 0.0, 0.01)):
            for method, test in (("hutchinson", 0.6), ("power", 0.6), ("lanczos", lanczos)):
                found += [attacked(method, 0.1, seed, 0.7, test + wobble), attacked(method, 1.0, seed, 0.5, 0.9)]
        return found

    assert verdict("R3", *lines(0.7)) == "holds in part", "one data set"
    assert verdict("R3", *lines(0.605)) == "does not hold"
    both = [*lines(0.7), *(line | {"run": line["run"] | {"data": "cifar"}} for line in lines(0.7))]
    assert verdict("R3", *both) == "holds"
    assert JUDGES["R3"](of(*lines(0.7))).came.endswith("hutchinson 60.0 %, power 60.0 %, lanczos 70.0 % (3 seeds)")
    assert verdict("R3", *lines(0.7)[:6]) == "not tested", "one seed"
    longer = [line | {"run": line["run"] | {"epochs": 9}} for line in lines(0.5) if line["run"]["method"] == "lanczos"]
    assert verdict("R3", *lines(0.7), *longer) == "holds in part", "another budget"
