"""What an op does inside, custom ops included: names and input shapes of every ATen call."""

from collections.abc import Callable

from torch.autograd.profiler import profile


def recorded(function: Callable[[], object]) -> list[tuple[str, str]]:
    """Run the function and return (name, input shapes) of each operator call, in order."""
    with profile(record_shapes=True) as record:
        function()
    return [(event.name, str(event.input_shapes)) for event in record.function_events]


def largest_input(function: Callable[[], object]) -> int:
    """Run the function and return the number of elements of the largest tensor that any operator reads."""
    largest = 0
    with profile(record_shapes=True) as record:
        function()
    for event in record.function_events:
        for shape in event.input_shapes:
            if shape and all(isinstance(length, int) for length in shape):
                elements = 1
                for length in shape:
                    elements *= length
                largest = max(largest, elements)
    return largest
