"""The library without Flower."""

import subprocess
import sys


def test_without_flower_the_library_works_and_says_what_to_install():
    program = (
        "import sys; sys.modules['flwr'] = None\nimport adaclip_tf\n"
        "try:\n    import adaclip_tf.flower\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'adaclip-tf[flower]'" in done.stdout, done.stderr
