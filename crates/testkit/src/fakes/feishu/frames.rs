//! Frames of the socket, written and read by hand: a second reading of the protocol beside that of the adapter.

/// `pbbp2.Frame`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    pub seq_id: u64,
    pub log_id: u64,
    pub service: u64,
    /// 0 for control, 1 for data
    pub method: u64,
    pub headers: Vec<(String, String)>,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn header(&self, key: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value.as_str())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (field, value) in [(1, self.seq_id), (2, self.log_id), (3, self.service), (4, self.method)] {
            varint(&mut out, field << 3);
            varint(&mut out, value);
        }
        for (key, value) in &self.headers {
            let mut header = Vec::new();
            bytes(&mut header, 1, key.as_bytes());
            bytes(&mut header, 2, value.as_bytes());
            bytes(&mut out, 5, &header);
        }
        bytes(&mut out, 8, &self.payload);
        out
    }

    /// `None`: it is no frame.
    pub fn decode(data: &[u8]) -> Option<Self> {
        let mut frame = Self::default();
        for (field, value) in fields(data)? {
            match (field, value) {
                (1, Value::Number(number)) => frame.seq_id = number,
                (2, Value::Number(number)) => frame.log_id = number,
                (3, Value::Number(number)) => frame.service = number,
                (4, Value::Number(number)) => frame.method = number,
                (5, Value::Bytes(header)) => {
                    let mut pair = (String::new(), String::new());
                    for (field, value) in fields(header)? {
                        let Value::Bytes(text) = value else { return None };
                        let text = String::from_utf8(text.to_vec()).ok()?;
                        *(if field == 1 { &mut pair.0 } else { &mut pair.1 }) = text;
                    }
                    frame.headers.push(pair);
                }
                (8, Value::Bytes(payload)) => frame.payload = payload.to_vec(),
                _ => {}
            }
        }
        Some(frame)
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn bytes(out: &mut Vec<u8>, field: u64, data: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, data.len() as u64);
    out.extend_from_slice(data);
}

fn read_varint(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = data.split_first()?;
        *data = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn fields(mut data: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut all = Vec::new();
    while !data.is_empty() {
        let key = read_varint(&mut data)?;
        let value = match key & 7 {
            0 => Value::Number(read_varint(&mut data)?),
            2 => {
                let length = usize::try_from(read_varint(&mut data)?).ok()?;
                let (value, rest) = data.split_at_checked(length)?;
                data = rest;
                Value::Bytes(value)
            }
            _ => return None,
        };
        all.push((key >> 3, value));
    }
    Some(all)
}
