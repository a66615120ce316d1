"""One image: file → header → pixels → the image of a record; its hashes; its masks.

`header.read_header` reads the header of a file. It decides in which of five ways
`convert.convert` makes the image of a record:

| image file                        | its way to the bytes of a record                |
|-----------------------------------|-------------------------------------------------|
| plain, and of the record's size   | copied; decoded small, only to find damage      |
| JPEG of one scan, grey or RGB     | reduced while OpenCV decodes it, resized, JPEG  |
| other JPEG, PNG, WebP, TIFF, …    | decoded by Pillow, resized, JPEG                |
| grey or CMYK, with a profile      | the same, as sRGB before it is resized          |
| 16 bits a value                   | the same, as 8 bits (`BIT_DEPTH`) before that   |

A profile of RGB is applied after resizing. Whatever cannot become a record raises
`header.RejectedImage`. Broken metadata does not: `header.open_image` leaves it out.
Three functions read an image for another purpose:

| function              | result                            | used for                |
|-----------------------|-----------------------------------|-------------------------|
| `convert.check_image` | header and small grey image       | damage and hashes in 01 |
| `convert.read_pixels` | RGB, perhaps reduced              | figures, SIFT, verify   |
| `header.read_upright` | RGB by Pillow alone, not OpenCV   | sources in verify, 05   |
"""
