"""One image: file → header → pixels → the image of a record; its hashes; its masks.

Five functions read an image file, each for one purpose:

| function              | result                            | used for                |
|-----------------------|-----------------------------------|-------------------------|
| `header.read_header`  | size, format, …, without decoding | first step of the next  |
| `convert.check_image` | header and small grey image       | damage and hashes in 01 |
| `convert.convert`     | JPEG of the record's size         | records in 03 and 04    |
| `convert.read_pixels` | RGB, perhaps reduced              | figures, SIFT, verify   |
| `header.read_upright` | RGB by Pillow alone, not OpenCV   | sources in verify, 05   |
"""
