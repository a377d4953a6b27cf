"""`python -m adaclip_tf.releasing FILE` says what a saved model holds that is not privatised."""

import sys

from adaclip_tf.releasing import inspection

if __name__ == "__main__":
    sys.exit(inspection.main(sys.argv))
