//! Targets for images: multipart forms, headers of image files, requests and responses.

use bytes::Bytes;
use codec::canonical::image::{ImageFamily, ImageFormat, ImageSource};
use codec::wire::form;
use codec::wire::images::{answer, check::check, convert, file, predict, request};

use super::choose;

/// Images: a form survives encoding and decoding, the size of an image file never changes with more bytes, a checked
/// request has only images that its model family accepts, and decoding a response never panics.
pub fn images(mut data: &[u8]) {
    match choose(&mut data, 4) {
        0 => {
            let body = Bytes::copy_from_slice(data);
            let Ok(parts) = form::read(&body, "x") else { return };
            let mut again = form::FormWriter::default();
            for part in &parts {
                let (ours, theirs) = (body.as_ptr_range(), part.value.as_ptr_range());
                assert!(
                    part.value.is_empty() || ours.start <= theirs.start && theirs.end <= ours.end,
                    "a copy"
                );
                match part.is_file {
                    true => again.file("name", "file", "image/png", part.value.clone()),
                    false => again.file("name", "", "text/plain", part.value.clone()),
                }
            }
            let (media, written) = again.finish();
            let boundary = form::boundary(&media).unwrap();
            let read = form::read(&written, &boundary).unwrap();
            assert!(read.iter().map(|part| &part.value).eq(parts.iter().map(|part| &part.value)));
            let _ = request::decode_form(&parts);
        }
        1 => {
            if let Some(found) = file(data) {
                assert!(found.points.is_none_or(|(width, height)| width > 0 && height > 0));
                let longer = [data, &[0; 64]].concat();
                let again = file(&longer).unwrap();
                assert!(found.points.is_none() || again.points == found.points, "more bytes, another size");
                if let Some(png) = convert::gif_to_png(data) {
                    let made = file(&png).unwrap();
                    assert!(made.picture == ImageFormat::Png && made.points == found.points);
                }
                if let Some(mask) = convert::mask(&Bytes::copy_from_slice(data)) {
                    assert!(file(&mask).unwrap().picture == ImageFormat::Png);
                }
            }
        }
        2 => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            let _ = predict::decode(text);
            let Ok(read) = request::decode(text) else { return };
            for family in ImageFamily::ALL {
                let mut request = read.clone();
                let rules = family.rules();
                if check(&mut request, &rules).is_err() {
                    continue;
                }
                assert!(request.images.len() <= rules.inputs.1);
                for input in &request.images {
                    if let ImageSource::Bytes(bytes) = &input.source {
                        assert!(rules.formats.contains(&file(bytes).unwrap().picture));
                    }
                }
            }
        }
        _ => {
            if let Ok(read) = answer::decode(&Bytes::copy_from_slice(data)) {
                let something = !read.images.is_empty() || !read.refusals.is_empty();
                assert!(something || read.failed || read.task.is_some());
            }
        }
    }
}
