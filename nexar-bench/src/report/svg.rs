//! Reading charts, for tests.

/// The texts of an XML document whose elements are properly nested.
pub(crate) fn texts(xml: &str) -> Vec<String> {
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    for part in xml.trim().split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag has an end");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().expect("a tag has a name")),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!text.contains('&'), "{text}");
        texts.push(text.trim().to_owned());
    }
    assert_eq!(open, [""; 0]);
    texts
}
